"""Cases of AMD's GPUs for the tables of the checks gpu.*: what was seen and what it leads to."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

from preflight.checks import gpu_health, gpu_links, gpu_visible, host_software
from preflight.domains.gpu.nvlink import GpuTopology, Lane, LinkedGpu
from preflight.domains.gpu.nvml import GpuListing, ListedGpu, PciGpu
from preflight.domains.gpu.vitals import GpuProcess, Reset, Resets, Vitals, VitalsListing
from preflight.domains.gpu.xid import XidLog
from preflight.model import Cause, Mark, Missing, Status
from support.cases import Case, topology

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
GIB = 1 << 30
MODEL = "AMD Instinct MI300X OAM"


def bus(index: int) -> str:
    return f"0000:{0x0C + 0x10 * index:02x}:00.0"


def silent(cause: Cause, *marks: str) -> Missing:
    names = [Mark(name, 0.01) for name in ("/sys/bus/pci", *marks)]
    return Missing(cause, seconds=5.0, marks=tuple(names))


# --- gpu.visible ---

CARDS = tuple(
    ListedGpu(i, MODEL, f"GPU-a00000000000000{i}", bus(i), 128 + i, "gfx942", 192 * GIB, GIB)
    for i in range(4)
)
FINE = gpu_visible.Visible(
    answer=GpuListing(driver="6.12.12", count=4, gpus=CARDS),
    module="6.12.12",
    pci=tuple(PciGpu(bus(i), "0x74a1", "amdgpu", None) for i in range(4)),
    withheld=0,
    unlisted=(),
    nodes=tuple(f"renderD{128 + i}" for i in range(4)),
    makes_nodes=False,
    libraries=(),
    mask=None,
    image="",
    slurm=None,
    tasks=0,
    make="AMD",
    mask_name="HIP_VISIBLE_DEVICES",
)


def but(**changes: Any) -> gpu_visible.Visible:
    return replace(FINE, **changes)


def down(code: int, text: str, count: int = 0, **changes: Any) -> gpu_visible.Visible:
    return but(answer=GpuListing(code, text, "6.12.12", count=count), **changes)


NO_KFD = down(errno.ENOENT, "/dev/kfd: No such file or directory", nodes=())
HALF = down(errno.ENOENT, "/dev/kfd: No such file or directory", count=4)
DENIED = down(errno.EACCES, "/dev/kfd: Permission denied", count=4)
UNLOADED = down(errno.ENODEV, "amdgpu is not loaded", module="", nodes=())
CUDA = {"mask_name": "CUDA_VISIBLE_DEVICES"}

VISIBLE = (
    Case("AMD: healthy", FINE),
    Case("AMD: the model is as expected", FINE, expect={"gpus_per_node": 4, "gpu_model": "MI300X"}),
    Case("AMD: slow is no matter of persistence", but(answer=replace(FINE.answer, seconds=2.9))),
    Case("AMD: a container that was given none", NO_KFD),
    Case("AMD: it should have some", NO_KFD, "kfd-not-exposed", FAIL, expect={"gpus_per_node": 4}),
    Case("AMD: SLURM gave some", replace(NO_KFD, slurm=4), "kfd-not-exposed", FAIL),
    Case("AMD: render nodes without KFD", HALF, "kfd-not-exposed", WARN),
    Case("AMD: no permission", DENIED, "kfd-permission-denied", WARN, subject="n1 · AMD driver"),
    Case("AMD: no permission in a job", replace(DENIED, slurm=4), "kfd-permission-denied", FAIL),
    Case("AMD: no driver", UNLOADED, "amdgpu-missing", WARN),
    Case(
        "AMD: GPUs of virtual machines are not ours",
        replace(UNLOADED, pci=tuple(replace(p, driver="vfio-pci") for p in FINE.pci)),
    ),
    Case("AMD: KFD hangs", silent(Cause.TIMED_OUT, "/sys/class/kfd"), "amdgpu-hangs", FAIL),
    Case(
        "AMD: a GPU hangs",
        silent(Cause.UNKILLABLE, "/sys/class/kfd", "open /dev/kfd", "device 3"),
        "amdgpu-hangs",
        FAIL,
        subject="n1 · AMD driver",
    ),
    Case(
        "AMD: fewer than expected",
        but(answer=GpuListing(count=3, gpus=CARDS[:3]), withheld=1),
        "gpu-count",
        FAIL,
        expect={"gpus_per_node": 4},
    ),
    Case("AMD: masks that leave all", but(first="3,2,1,0", mask="0,1,2,3")),
    Case("AMD: the second counts in the first", but(first="2,3", mask="2"), "mask-empty", FAIL),
    Case("AMD: the first alone", but(first="0,1"), "too-few-gpus", FAIL),
    Case("AMD: by UUID", but(mask=CARDS[2].uuid), topology=topology(1)),
    Case("AMD: CUDA's counts, too", but(mask="9", **CUDA), "mask-empty", FAIL),
)

# --- gpu.health ---


def vitals(index: int, **changes: Any) -> Vitals:
    well = Vitals(
        index,
        name=MODEL,
        uuid=CARDS[index].uuid,
        bus=bus(index),
        volatile=0,
        rows=0,
        remap_failed=False,
        pages_pending=False,
        brakes=0,
        temperature=41,
        slowdown_at=100,
        width=16,
        width_max=16,
        memory=192 * GIB,
        used=300 << 20,
    )
    return replace(well, **changes)


def health(index: int = 2, resets: Resets | None = None, **changes: Any) -> gpu_health.Health:
    """Four GPUs, one of them different."""
    gpus = tuple(vitals(i, **(changes if i == index else {})) for i in range(4))
    return gpu_health.Health(
        told=VitalsListing(4, gpus),
        log=XidLog(),
        uptime=9e4,
        bus=tuple(map(bus, range(4))),
        mask=None,
        job="",
        tasks=0,
        make="AMD",
        resets=resets or Resets(),
    )


def since(age: float) -> Resets:
    return Resets((Reset(bus(2), age),))


OTHERS = (GpuProcess(77, "python", 1001, 180 * GIB),)
WITHOUT = VitalsListing(4, tuple(map(vitals, range(4))), "the package amdsmi is not installed")
HANGS = silent(Cause.TIMED_OUT, "amdsmi_get_temp_metric of GPU 3")

HEALTH = (
    Case("AMD: healthy", health()),
    Case("AMD: pages that were put out of use long ago", health(rows=12)),
    Case("AMD: little is told", health(volatile=None, brakes=None, temperature=None, width=None)),
    Case("AMD: no kernel log", health(resets=Resets(refused="/dev/kmsg: no"))),
    Case("AMD: a page waits", health(pages_pending=True), "bad-pages", FAIL, subject="n1 · GPU 2"),
    Case("AMD: a page can't be put out of use", health(remap_failed=True), "bad-pages", FAIL),
    Case("AMD: errors", health(volatile=2), "ras-errors", WARN),
    Case("AMD: a reset failed", health(resets=since(60)), "reset-failed", FAIL),
    Case("AMD: a reset failed yesterday", health(resets=since(9e4))),
    Case("AMD: not ours", replace(health(pages_pending=True), first="0,1"), "bad-pages", WARN),
    Case("AMD: throttled", health(brakes=0x9), "clocks-throttled", WARN),
    Case("AMD: hot", health(temperature=100), "too-hot", WARN),
    Case("AMD: x8", health(width=8), "pcie-downgraded", WARN),
    Case("AMD: taken", health(used=181 * GIB, processes=OTHERS), "gpu-busy", FAIL),
    Case("AMD: no permission", health(refused=("amdsmi_init",)), "health-unknown", UNDECIDED),
    Case(
        "AMD: an error is not NVML's of that number",
        health(failed={"amdsmi_get_pcie_info": -15}),
        "health-unknown",
        UNDECIDED,
    ),
    Case("AMD: no amdsmi", replace(health(), told=WITHOUT), "amdsmi-unavailable", UNDECIDED),
    Case("AMD: it hangs", HANGS, "amdsmi-hangs", FAIL, subject="n1 · GPU 3"),
    Case(
        "AMD: its start hangs",
        silent(Cause.UNKILLABLE, "amdsmi_init"),
        "amdsmi-hangs",
        FAIL,
        subject="n1 · AMD driver",
    ),
    Case("AMD: it crashes", replace(HANGS, cause=Cause.CRASHED), "amdsmi-unavailable", UNDECIDED),
)

# --- gpu.links ---


def joined(hives: tuple[int, ...], model: str = MODEL) -> gpu_links.GpuLinks:
    """GPUs with XGMI to all others of their hive; 0: in none."""
    gpus = tuple(
        LinkedGpu(
            i,
            model,
            bus=bus(i),
            lanes=tuple(
                Lane(n + 2, True, remote=bus(n))
                for n, other in enumerate(hives)
                if n != i and hive == other != 0
            ),
        )
        for i, hive in enumerate(hives)
    )
    return gpu_links.GpuLinks(GpuTopology(driver="6.12.12", count=len(gpus), gpus=gpus), make="AMD")


EIGHT = (1,) * 8
LINKS = (
    Case("AMD: one hive", joined(EIGHT)),
    Case("AMD: one GPU", joined((0,))),
    Case("AMD: no XGMI", joined((0,) * 4, "Radeon")),
    Case("AMD: bridges over two", joined((1, 1, 2, 2))),
    Case("AMD: bridges over four", joined((1, 1, 1, 1, 2, 2, 2, 2))),
    Case("AMD: two of three", joined((1, 1, 0))),
    Case(
        "AMD: one has not joined",
        joined((1, 1, 1, 1, 1, 0, 1, 1)),
        "xgmi-missing",
        WARN,
        subject="n1 · GPU 5",
    ),
    Case(
        "AMD: a bridge is missing on one node",
        {n: joined((1, 1, 0, 0) if n == "n3" else (1, 1, 2, 2)) for n in ("n1", "n2", "n3")},
        "xgmi-missing",
        WARN,
        topology=topology(3),
    ),
    Case("AMD: nodes of two kinds", {"n1": joined(EIGHT), "n2": joined((1, 1))}),
)

# --- host.software ---

TORCHRUN = topology(4, launcher="torchrun")


def software(
    node: host_software.TorchSoftware, for_cpu: host_software.TorchBuild
) -> tuple[Case, ...]:
    """`node`: torch for CUDA on a machine with NVIDIA's GPUs."""
    hip = replace(node.build, cuda="", other="hip", architectures=("gfx942",))
    rocm = replace(node, build=hip)
    on_amd: dict[str, Any] = {"cards": (), "driver": "", "amd_gpus": 8}
    cpu = replace(node, build=for_cpu, **on_amd)
    return (
        Case("ROCm on NVIDIA", rocm, "other-vendor", FAIL, topology=TORCHRUN),
        Case("ROCm on NVIDIA by hand", rocm, "other-vendor", WARN),
        Case("ROCm without a GPU", replace(rocm, cards=(), driver="")),
        Case("ROCm on AMD", replace(rocm, **on_amd), topology=TORCHRUN),
        Case("CUDA on AMD", replace(node, **on_amd), "other-vendor", FAIL, topology=TORCHRUN),
        Case("CPU torch on AMD by hand", cpu, "other-vendor", WARN),
        Case("CPU torch on AMD, no GPU wanted", replace(cpu, no_gpu=True)),
    )
