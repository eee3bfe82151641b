"""gpu.visible: a driver that hangs, GPUs that are lost, masks that hide them; nothing elsewhere."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lab import nvml
from support import amd_cases
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import conforms
from preflight.checks import gpu_visible
from preflight.domains.gpu.mps import MpsDaemon
from preflight.domains.gpu.nvml import MASK, GpuListing, ListedGpu, PciGpu
from preflight.host import Host
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Mark,
    Missing,
    Node,
    NotApplicable,
    Status,
)
from preflight.serde import encode

conforms(gpu_visible)

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
TORCHRUN = topology(4, launcher="torchrun")
SLURM = topology(4, launcher="SLURM")


def gpu(index: int, **changes: object) -> ListedGpu:
    healthy = ListedGpu(
        index,
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-{index}a",
        bus=f"0000:{0x18 + 0x10 * index:02x}:00.0",
        minor=index,
        capability="9.0",
        memory=80 << 30,
        used=500 << 20,
        compute_mode=0,
        mig=False,
        persistent=True,
    )
    return replace(healthy, **changes)


def pci(index: int, **changes: object) -> PciGpu:
    return replace(PciGpu(gpu(index).bus, "0x2330", "nvidia", index), **changes)


ANSWER = GpuListing(
    driver="550.54.15", cuda="12.4", count=4, gpus=tuple(gpu(i) for i in range(4)), seconds=0.3
)
FINE = gpu_visible.Visible(
    answer=ANSWER,
    module="550.54.15",
    pci=tuple(pci(i) for i in range(4)),
    withheld=0,
    unlisted=(),
    nodes=("nvidia-uvm", "nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl"),
    makes_nodes=False,
    libraries=(),
    mask=None,
    image="",
    slurm=None,
    tasks=0,
)


def but(**changes: object) -> gpu_visible.Visible:
    return replace(FINE, **changes)


def has(count: int, **changes: object) -> gpu_visible.Visible:
    """A node with fewer or more GPUs, all of them healthy."""
    answer = replace(ANSWER, count=count, gpus=tuple(gpu(i) for i in range(count)))
    return but(answer=answer, pci=tuple(pci(i) for i in range(count)), **changes)


def one(index: int, **changes: object) -> gpu_visible.Visible:
    """FINE, where one GPU is different."""
    gpus = tuple(gpu(i, **(changes if i == index else {})) for i in range(4))
    return but(answer=replace(ANSWER, gpus=gpus))


def every(**changes: object) -> gpu_visible.Visible:
    return but(answer=replace(ANSWER, gpus=tuple(gpu(i, **changes) for i in range(4))))


def instances(
    name: str,
    mask: str,
    code: str | None = None,
    status: Status | None = None,
    names: tuple[str, ...] | None = ("MIG-2a", "MIG-GPU-2a/7/0"),
) -> Case:
    """One rank with this mask, where GPU 2 is partitioned into MIG devices with these names."""
    seen = replace(one(2, mig=True, instances=1, mig_names=names), mask=mask)
    return Case(name, seen, code, status, topology=topology(1))


T400: dict[str, object] = {
    "name": "NVIDIA T400 4GB",
    "capability": "7.5",
    "memory": 4 << 30,
}


def display(mask: str | None, order: str = "PCI_BUS_ID") -> gpu_visible.Visible:
    """A card for the display comes first on the bus, and the job has a mask."""
    return replace(one(0, **T400), mask=mask, order=order)


def two_and_two() -> gpu_visible.Visible:
    gpus = tuple(gpu(i, **(T400 if i < 2 else {})) for i in range(4))
    return but(answer=replace(ANSWER, gpus=gpus))


def down(code: int, text: str = "", **changes: object) -> gpu_visible.Visible:
    """A node where NVML could not start."""
    return but(answer=GpuListing(code, text or f"error {code}"), **changes)


def silent(cause: Cause, *marks: str) -> Missing:
    names = [Mark(name, 0.01) for name in ("/sys/bus/pci", *marks)]
    return Missing(cause, seconds=5.0, marks=tuple(names))


COMPAT = "/usr/local/cuda/compat/libcuda.so.1"
OLD_CUDA, NEW_CUDA = (COMPAT, "535.104.05"), (COMPAT, "590.44.01")
STUB = ("/usr/local/cuda/lib64/stubs/libcuda.so.1", "stub")
OURS = Missing(Cause.CRASHED, "Traceback (most recent call last):\nKeyError: 'x'", 0.2)
NOT_FOUND = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
GONE = ListedGpu(2, error=15, text="GPU is lost")
CASES = (
    Case("healthy", FINE),
    Case("healthy under torchrun", FINE, topology=TORCHRUN),
    Case("nothing was seen", {}),
    Case("no GPU, none expected", Missing(Cause.NOT_APPLICABLE, "no NVIDIA GPU or driver here")),
    Case("another check blocks", Missing(Cause.CANNOT_OBSERVE, "no nvidia-ml-py")),
    Case("more GPUs than ranks", has(8)),
    # the driver
    Case(
        "nvmlInit hangs",
        silent(Cause.TIMED_OUT, "nvmlInit"),
        "driver-hangs",
        FAIL,
        subject="n1 · NVIDIA driver",
    ),
    Case(
        "no daemon, and the kernel has logged why",
        silent(Cause.TIMED_OUT, gpu_visible.NO_DAEMON, "xid 79 0000:38:00.0", "nvmlInit"),
        "driver-hangs",
        FAIL,
    ),
    Case("a GPU hangs", silent(Cause.UNKILLABLE, "nvmlInit", "device 3"), "driver-hangs", FAIL),
    Case("its /proc hangs", silent(Cause.UNKILLABLE, gpu_visible.PROC), "driver-hangs", FAIL),
    Case("too busy a machine: can't tell", silent(Cause.TIMED_OUT)),
    Case(
        "NVML crashes",
        silent(Cause.CRASHED, "nvmlInit"),
        "nvml-crashes",
        UNDECIDED,
        subject="n1 · NVIDIA driver",
    ),
    Case("a fault of ours: can't tell", replace(OURS, marks=(Mark("device 0", 0.1),))),
    Case("crashed before NVML: can't tell", silent(Cause.CRASHED)),
    Case(
        "slow or hung, without persistence mode",
        silent(Cause.TIMED_OUT, gpu_visible.NO_DAEMON, "nvmlInit"),
        "nvml-slow",
        UNDECIDED,
    ),
    Case(
        "the same, and SIGKILL has no effect",
        silent(Cause.UNKILLABLE, gpu_visible.NO_DAEMON, "nvmlInit"),
        "driver-hangs",
        FAIL,
    ),
    Case(
        "no answer in half a minute",
        replace(silent(Cause.TIMED_OUT, gpu_visible.NO_DAEMON, "nvmlInit"), seconds=30.0),
        "driver-hangs",
        FAIL,
    ),
    Case(
        "mismatch",
        down(18, libraries=("libnvidia-ml.so.570.124.06",)),
        "driver-mismatch",
        FAIL,
        subject="n1 · NVIDIA driver",
    ),
    Case("device rules lost", down(999), "no-access", FAIL),
    Case("not in the group of the devices", down(4), "gpu-permission-denied", FAIL),
    Case("nouveau on a laptop", down(12, module="", nodes=()), "driver-missing", WARN),
    Case("not loaded, but SLURM gave GPUs", down(9, module="", slurm=4), "driver-missing", FAIL),
    Case(
        "a kernel update left the module behind",
        down(9, module="", nodes=()),
        "driver-missing",
        FAIL,
    ),
    Case(
        "nouveau in its place",
        down(9, module="", nodes=(), pci=(pci(0, driver="nouveau"),)),
        "driver-missing",
        WARN,
    ),
    Case("libraries of a driver, and no GPU", down(9, module="", nodes=(), pci=())),
    Case(
        "a container without utility",
        down(12, NOT_FOUND, capabilities="compute"),
        "nvml-not-exposed",
        FAIL,
    ),
    Case(
        "the same, one rank",
        down(12, NOT_FOUND, capabilities="compute,video"),
        "nvml-not-exposed",
        WARN,
        topology=topology(1),
    ),
    Case(
        "utility is there, the library is not",
        down(12, NOT_FOUND, capabilities="compute,utility"),
        "gpus-not-exposed",
        WARN,
    ),
    Case("an empty library", down(12, "libnvidia-ml.so.1: file too short"), "nvml-unusable", FAIL),
    Case(
        "an empty library, one rank",
        down(12, "libnvidia-ml.so.1: file too short"),
        "nvml-unusable",
        WARN,
        topology=topology(1),
    ),
    Case(
        "GPUs of virtual machines are not ours",
        down(12, module="", nodes=(), pci=(pci(0, driver="vfio-pci"),)),
    ),
    Case("CPU container on a GPU node", down(12, nodes=())),
    Case(
        "the runtime was told void", down(12, nodes=(), image="void"), "gpus-not-exposed", UNDECIDED
    ),
    Case(
        "none, with the libraries", down(9, nodes=(), image="none"), "gpus-not-exposed", UNDECIDED
    ),
    Case("nothing", down(12, nodes=(), image_empty=True), "gpus-not-exposed", UNDECIDED),
    Case(
        "void, and GPUs are wanted",
        down(12, nodes=(), image="void", slurm=4),
        "gpus-not-exposed",
        FAIL,
    ),
    Case("void, and CDI brings the devices", but(image="void")),
    Case("docker without --gpus", down(12, nodes=(), image="all"), "gpus-not-exposed", WARN),
    Case("apptainer without --nv", down(12, NOT_FOUND), "gpus-not-exposed", WARN),
    Case(
        "container without the expected GPUs",
        down(12, nodes=()),
        "gpus-not-exposed",
        FAIL,
        expect={"gpus_per_node": 4},
    ),
    Case("no uvm", but(nodes=("nvidia0", "nvidiactl")), "uvm-missing", FAIL),
    Case("uvm is made on demand", but(nodes=("nvidia0", "nvidiactl"), makes_nodes=True)),
    Case("WSL has no device nodes", but(nodes=(), module="", pci=())),
    Case("slow", but(answer=replace(ANSWER, seconds=2.9)), "nvml-slow", WARN),
    Case("no time for all", but(answer=replace(ANSWER, gpus=ANSWER.gpus[:2])), "nvml-slow", WARN),
    # GPUs
    Case(
        "lost",
        but(answer=replace(ANSWER, gpus=(gpu(0), gpu(1), GONE, gpu(3)))),
        "gpu-lost",
        FAIL,
        subject="n1 · GPU 2",
    ),
    Case(
        "a lost GPU that the mask leaves out",
        but(answer=replace(ANSWER, gpus=(gpu(0), gpu(1), GONE, gpu(3))), mask="0,1"),
        "gpu-lost",
        WARN,
        topology=topology(2),
    ),
    Case("reset wanted", one(1, error=16, text="GPU requires reset"), "gpu-error", FAIL),
    Case("not permitted is not lost", one(3, error=4), topology=topology(3)),
    Case(
        "on the bus, but not listed",
        replace(has(3), pci=FINE.pci, unlisted=(pci(3),)),
        "gpu-lost",
        FAIL,
        subject="n1 · 0000:48:00.0",
    ),
    Case(
        "on the bus, and as many as SLURM gave this step are listed",
        replace(has(2), pci=FINE.pci, unlisted=(pci(2), pci(3)), slurm=2),
        topology=topology(2),
    ),
    Case(
        "one fewer than SLURM gave",
        replace(has(3), pci=FINE.pci, unlisted=(pci(3),), slurm=4),
        "gpu-lost",
        FAIL,
        topology=topology(3),
    ),
    Case("a pod with some of the node's GPUs", but(pci=tuple(map(pci, range(8))), withheld=4)),
    Case("fewer than expected", has(3), "gpu-count", FAIL, expect={"gpus_per_node": 4}),
    Case("as expected", FINE, expect={"gpus_per_node": 4, "gpu_model": "h100"}),
    Case("fewer than SLURM gave", has(3, slurm=4), "gpu-count", FAIL, topology=topology(3)),
    Case(
        "none where some are expected",
        Missing(Cause.NOT_APPLICABLE, "no NVIDIA GPU or driver here"),
        "gpu-count",
        FAIL,
        expect={"gpus_per_node": 4},
    ),
    Case("CPU job on a GPU node", has(0, withheld=4, mask="NoDevFiles", tasks=4)),
    Case("wrong model", FINE, "gpu-model", FAIL, expect={"gpu_model": "H200"}),
    Case("prohibited", one(1, compute_mode=2), "compute-mode", FAIL, subject="n1 · GPU 1"),
    Case(
        "prohibited, but not ours",
        replace(one(3, compute_mode=2), mask="0,1,2"),
        topology=topology(3),
    ),
    Case("exclusive", every(compute_mode=3), "compute-mode", WARN),
    Case("exclusive, as MPS wants it", replace(every(compute_mode=3), mps=True)),
    Case(
        "MPS gives each rank a quarter of its GPU",
        replace(FINE, mps=True, share=25.0),
        "mps-share-limited",
        WARN,
        subject="n1",
    ),
    Case("MPS gives each rank all of it", replace(FINE, mps=True)),
    Case("a share, and MPS does not run", replace(FINE, share=25.0)),
    Case(
        "exclusive, and the daemon of MPS has ended",
        replace(every(compute_mode=3), mps_daemon=MpsDaemon("/run/mps", "nobody listens", True)),
        "mps-daemon-gone",
        WARN,
        subject="n1 · GPU 0",
    ),
    Case(
        "the daemon of MPS has ended, and the mode is the default",
        replace(FINE, mps_daemon=MpsDaemon("/run/mps", "nobody listens", True)),
    ),
    Case("exclusive with one rank", every(compute_mode=3), topology=topology(1)),
    Case("MIG under four ranks", every(mig=True), "too-few-gpus", FAIL),
    Case(
        "a GPU of four in MIG mode without an instance",
        one(2, mig=True, instances=0),
        "mig-empty",
        FAIL,
        subject="n1 · GPU 2",
    ),
    Case(
        "and more ranks than there would be with it",
        one(2, mig=True, instances=0),
        "too-few-gpus",
        FAIL,
        topology=topology(5),
    ),
    Case("one with an instance, which CUDA may count", one(2, mig=True, instances=1), "mig-mode"),
    Case(
        "the mask leaves it out",
        replace(one(2, mig=True, instances=0), mask="0,1,3"),
        topology=topology(3),
    ),
    Case(
        "no instance on the only GPU",
        but(answer=replace(ANSWER, count=1, gpus=(gpu(0, mig=True, instances=0),))),
        "mig-empty",
        FAIL,
        subject="n1 · GPU 0",
        topology=topology(1),
    ),
    Case("one instance by its index", every(mig=True, instances=7), topology=topology(1)),
    Case("MIG, one rank", replace(every(mig=True), mask="MIG-1234"), topology=topology(1)),
    # several models
    Case(
        "an A100 among H100",
        one(2, name="NVIDIA A100-PCIE-40GB", capability="8.0", memory=40 << 30),
        "models-mixed",
        WARN,
        subject="n1 · GPU 2",
    ),
    Case(
        "a display card that rank 0 gets, though the others would do",
        display(None),
        "models-mixed",
        WARN,
        subject="n1 · GPU 0",
        topology=topology(3),
    ),
    Case("in CUDA's own order it comes last", display(None, ""), topology=topology(3)),
    Case("and here it comes last by the mask", display("1,2,3,0"), topology=topology(3)),
    Case("two and two", two_and_two(), "models-mixed", WARN, subject="n1 · GPU 0"),
    Case("as many alike as ranks", two_and_two(), topology=topology(2)),
    Case("a workstation's display card, and one rank", one(0, **T400), topology=topology(1)),
    Case("a display card, and the mask leaves it out", display("1,2,3"), topology=topology(3)),
    Case("a display card, and UUIDs", display("GPU-1a,GPU-2a"), topology=topology(2)),
    Case(
        "a display card, and the mask may mean it",
        display("0,1", ""),
        "mask-order",
        WARN,
        topology=topology(2),
    ),
    Case(
        "the last card is the display's: both orders are the same",
        replace(one(3, **T400), mask="0,1"),
        topology=topology(2),
    ),
    Case(
        "one rank, and the mask means the display card",
        display("0", ""),
        "mask-order",
        WARN,
        topology=topology(1),
    ),
    # masks
    Case("a MIG instance, and MIG is off", but(mask="MIG-1234"), "mask-empty", FAIL),
    Case("the same, one rank", but(mask="MIG-12"), "mask-empty", FAIL, topology=topology(1)),
    Case(
        "two instances for two ranks",
        replace(every(mig=True), mask="MIG-12,MIG-34"),
        "too-few-gpus",
        FAIL,
        topology=topology(2),
    ),
    Case(
        "an instance for each task",
        replace(every(mig=True), mask="MIG-12", tasks=4),
        "mig-mode",
        WARN,
        topology=SLURM,
    ),
    Case("all in another order", but(mask="3,2,1,0")),
    Case("by UUID", but(mask="GPU-3a,GPU-2a,GPU-1a,GPU-0a"), topology=TORCHRUN),
    Case("no GPU wanted", but(mask=""), "mask-empty", WARN),
    Case(
        "none on one node of two",
        {"n1": but(), "n2": but(mask="")},
        "mask-empty",
        FAIL,
        subject="n2",
        topology=topology(nodes=(Node("n1", (0,)), Node("n2", (1,))), size=2),
    ),
    Case(
        "none on both nodes",
        {"n1": but(mask=""), "n2": but(mask="")},
        "mask-empty",
        WARN,
        topology=topology(nodes=(Node("n1", (0,)), Node("n2", (1,))), size=2),
    ),
    Case("none, but SLURM gave some", but(mask="", slurm=4), "mask-empty", FAIL),
    Case("none by mistake", but(mask="4,5,6,7"), "mask-empty", FAIL),
    Case("twice the same", but(mask="0,0,1,2"), "mask-duplicate", FAIL),
    Case("twice, and behind it one that is not here", but(mask="1,1,9"), "mask-duplicate", FAIL),
    Case("hides what the ranks need", but(mask="0,1,9,2,3"), "mask-invalid", FAIL),
    Case(
        "LOCAL_RANK counts the ranks of the job",
        replace(has(1), local_rank=1),
        "local-rank-invalid",
        FAIL,
        topology=topology(1),
    ),
    Case("no GPU at all, and a rank that needs none", has(0, local_rank=0), topology=topology(1)),
    Case("each has a mask of its own", but(mask="2", local_rank=2), topology=topology(1)),
    Case(
        "each has a GPU of its own in a cgroup",
        replace(has(1), pci=FINE.pci, withheld=3, local_rank=2),
        topology=topology(1),
    ),
    Case("a try on the CPU", replace(has(1), mask="", local_rank=1), "mask-empty", WARN),
    Case("hides the last", but(mask="0,1,9,2"), "mask-invalid", WARN, topology=topology(2)),
    Case(
        "a container without CUDA",
        but(capabilities="utility", no_cuda=True),
        "cuda-not-exposed",
        FAIL,
        subject="n1 · NVIDIA driver",
    ),
    Case("an image that brings a libcuda of its own", but(capabilities="utility")),
    # a cuda-compat library in front of the driver's own
    Case(
        "an older libcuda",
        but(driver_library=OLD_CUDA),
        "compat-misplaced",
        FAIL,
        subject="n1 · libcuda",
    ),
    Case("a newer libcuda on GPUs for it", but(driver_library=NEW_CUDA)),
    Case(
        "a newer libcuda on others",
        replace(every(name="NVIDIA GeForce RTX 4090"), driver_library=NEW_CUDA),
        "compat-misplaced",
        FAIL,
    ),
    Case(
        "the driver's own libcuda",
        replace(every(name="NVIDIA GeForce RTX 4090"), driver_library=(COMPAT, FINE.module)),
    ),
    Case(
        "an older libcuda, and no GPU is wanted",
        but(driver_library=OLD_CUDA, mask=""),
        "mask-empty",
        WARN,
    ),
    Case("a stub of libcuda", but(driver_library=STUB), "libcuda-stub", FAIL),
    Case("a stub of libcuda, and no GPU", has(0, driver_library=STUB)),
    Case("an older libcuda, and no GPU", has(0, driver_library=OLD_CUDA)),
    Case("a list that -1 ends", but(mask="0,1,-1"), topology=topology(2)),
    Case("a comma too much", but(mask="0,1,2,3,")),
    Case("-1 in the middle", but(mask="0,1,-1,3"), "mask-invalid", WARN, topology=topology(2)),
    Case("a list that -1 ends too soon", but(mask="0,-1,"), "too-few-gpus", FAIL),
    Case("nothing but commas", but(mask=",,"), "mask-empty", WARN),
    Case("a comma in front", but(mask=",0,1,2,3"), "mask-empty", FAIL),
    Case("a UUID without one", but(mask="GPU-"), "mask-empty", FAIL, topology=topology(1)),
    Case(
        "one of four may not be opened",
        one(3, error=4, text="Insufficient Permissions"),
        "too-few-gpus",
        FAIL,
    ),
    Case(
        "one of four may not be opened, and three are enough",
        one(3, error=4, text="Insufficient Permissions"),
        topology=topology(3),
    ),
    Case("eight ranks", FINE, "too-few-gpus", FAIL, topology=topology(8, launcher="torchrun")),
    Case(
        "two GPUs are a virtual machine's, and six ranks",
        but(pci=(*FINE.pci, *(pci(n, driver="vfio-pci", minor=None) for n in (4, 5)))),
        "too-few-gpus",
        FAIL,
        topology=topology(6),
    ),
    Case(
        "two GPUs are a virtual machine's, and four ranks",
        but(pci=(*FINE.pci, *(pci(n, driver="vfio-pci", minor=None) for n in (4, 5)))),
    ),
    Case("--nproc by hand", has(1), "too-few-gpus", FAIL),
    Case("mask too small", but(mask="0,1"), "too-few-gpus", FAIL, topology=TORCHRUN),
    Case("one for all", but(mask="0", tasks=1), "too-few-gpus", FAIL, topology=SLURM),
    Case("one each", but(mask="0", tasks=4, slurm=4), "mask-per-task", WARN, topology=SLURM),
    Case(
        "one each, parted by control groups",
        has(1, mask="0", tasks=4, slurm=4, withheld=3),
        "mask-per-task",
        WARN,
        topology=SLURM,
        expect={"gpus_per_node": 4},
    ),
    Case("three for four tasks", has(3, tasks=4), "too-few-gpus", FAIL, topology=SLURM),
    Case(
        "one rank alone of one each",
        but(mask="2", tasks=4, local=(2, 4)),
        "mask-per-task",
        WARN,
        topology=topology(1),
    ),
    Case(
        "two tasks with their own",
        but(mask="0,1", tasks=2, local=(0, 2)),
        topology=topology(1),
    ),
    Case("one of eight local ranks", but(local=(0, 8)), "too-few-gpus", FAIL, topology=topology(1)),
    Case("one of four local ranks", but(local=(3, 4)), topology=topology(1)),
    Case("the virtual local rank of torchrun", but(mask="2", local=(0, 1)), topology=topology(1)),
    Case("odd bytes", but(mask="\0{x}%s" * 600), "mask-empty", FAIL),
    *amd_cases.VISIBLE,
    instances("a MIG device that is not there", "MIG-77", "mask-empty", FAIL),
    instances("the same in the older format", "MIG-GPU-2a/9/0", "mask-empty", FAIL),
    instances("an instance of a GPU that is not there", "MIG-GPU-9a/7/0", "mask-empty", FAIL),
    instances("no MIG device at all", "MIG-2a", "mask-empty", FAIL, names=()),
    instances("the second one is not there", "MIG-2a,MIG-77", "mask-invalid", WARN),
    instances("a MIG device by its UUID", "MIG-2a"),
    instances("in other letters", "MIG-2A"),
    instances("by the beginning of it", "MIG-2"),
    instances("by GPU and instance", "MIG-GPU-2a/7/0"),
    instances("with an end of the list", "MIG-2a,-1,MIG-77"),
    instances("names that the driver does not tell", "MIG-77", names=None),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(gpu_visible, case)


def test_every_code_has_a_case() -> None:
    assert {c.code for c in CASES} - {None} == set(gpu_visible.FINDINGS)


def test_one_finding_names_the_root() -> None:
    """A lost GPU is not reported as a wrong count or a rank without a GPU as well."""
    gpus = (gpu(0), gpu(1), GONE, gpu(3))
    saw = but(answer=replace(ANSWER, gpus=gpus), mask="0,1,2,3")
    case = Case("", saw, topology=replace(TORCHRUN, size=4), expect={"gpus_per_node": 4})
    (finding,) = judged(gpu_visible, case)
    assert finding.subjects[0].ranks == (2,)
    assert finding.blame is Blame.NODE
    (finding,) = judged(gpu_visible, Case("", has(3), topology=SLURM, expect={"gpus_per_node": 4}))
    assert finding.code == "gpu-count"


def test_a_slow_start_may_look_like_a_hang() -> None:
    """Without nvidia-persistenced the report says what else it may be, and is less sure."""
    sure = silent(Cause.UNKILLABLE, "nvmlInit")
    unsure = silent(Cause.UNKILLABLE, gpu_visible.NO_DAEMON, "nvmlInit")
    assert [
        (f.confidence, bool(f.alternatives))
        for saw in (sure, unsure)
        for f in judged(gpu_visible, Case("", saw))
    ] == [(Confidence.CERTAIN, False), (Confidence.LIKELY, True)]


def test_fewer_gpus_by_a_container_are_the_jobs_fault() -> None:
    saw = replace(has(2, withheld=2), pci=FINE.pci)
    case = Case("", saw, expect={"gpus_per_node": 4}, topology=topology(2))
    assert [f.blame for f in judged(gpu_visible, case)] == [Blame.JOB]


def test_observe_what_a_started_rank_is_told(node: Path) -> None:
    environ = {
        **{"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"},
        **{"NVIDIA_VISIBLE_DEVICES": "", "CUDA_MPS_PIPE_DIRECTORY": "/run/mps"},
    }
    seen = nvml.observed(
        "gpu.visible", nvml.settings(8), root=node, environ=environ, local_world_size=1
    ).value
    assert (seen.local, seen.image_empty, seen.mps) == ((2, 4), True, True)
    for odd in ({"LOCAL_RANK": "4"}, {"LOCAL_WORLD_SIZE": "x"}, {"RANK": ""}):
        environ_of_it = {**environ, **odd}
        seen = nvml.observed(
            "gpu.visible", nvml.settings(8), root=node, environ=environ_of_it, local_world_size=1
        ).value
        assert seen.local is None


def test_here() -> None:
    """This machine, whatever it is: an answer that survives JSON, or a clear refusal."""
    with contextlib.suppress(NotApplicable):
        round_trips(gpu_visible.observe(Host(), context()))


def test_without_a_gpu_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        gpu_visible.observe(Host(str(tmp_path)), context())
    (tmp_path / "proc").mkdir()
    seen = nvml.observed("gpu.visible", None, root=tmp_path, environ={"CUDA_VISIBLE_DEVICES": ""})
    assert seen.raised == "NotApplicable"


def test_a_copied_tree_can_not_answer(tmp_path: Path) -> None:
    nvml.machine(tmp_path, gpus=1)
    with pytest.raises(CannotObserve):
        gpu_visible.observe(Host(str(tmp_path)), context())


@pytest.fixture
def node(tmp_path: Path) -> Path:
    nvml.machine(tmp_path, gpus=8)
    return tmp_path


def test_observe_eight_healthy_gpus(node: Path) -> None:
    environ = {
        "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
    }
    seen = nvml.observed("gpu.visible", nvml.settings(8), root=node, environ=environ)
    value = seen.value
    assert value.answer.count == len(value.answer.gpus) == len(value.pci) == 8
    assert (value.answer.driver, value.answer.cuda) == ("550.54.15", "12.4")
    assert value.module == "550.54.15"
    assert [g.bus for g in value.answer.gpus] == [p.bus for p in value.pci]
    assert value.answer.gpus[1] == replace(
        gpu(1), uuid=value.answer.gpus[1].uuid, memory=85520809984, used=524288000
    )
    assert (value.slurm, value.tasks, value.withheld, value.unlisted) == (8, 8, 0, ())
    assert seen.marks == (
        "/proc/driver/nvidia",
        "/dev/kmsg",
        "nvmlInit",
        "nvmlDeviceGetCount",
        *(f"device {i}" for i in range(8)),
        "folder of MPS",
        "LD_LIBRARY_PATH",
    )
    assert_case(gpu_visible, Case("", value, topology=topology(8, launcher="SLURM")))
    measured = gpu_visible.measured(world("gpu.visible", value))
    assert measured.text == "8 x H100 80GB HBM3 80 GiB · driver 550.54.15"


def test_observe_a_search_path_with_cuda_compat(node: Path) -> None:
    for folder in ("usr/local/cuda/lib64/stubs", "usr/local/cuda/compat"):
        (node / folder).mkdir(parents=True)
    (node / "usr/local/cuda/lib64/stubs/libcuda.so").touch()
    (node / COMPAT.lstrip("/")).symlink_to("libcuda.so.535.104.05")
    environ = {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs:/usr/local/cuda/compat/:/opt/y"}
    seen = nvml.observed("gpu.visible", nvml.settings(8), root=node, environ=environ).value
    assert (seen.driver_library, seen.search) == (OLD_CUDA, "/usr/local/cuda/lib64/stubs:/opt/y")
    (finding,) = judged(gpu_visible, Case("", seen, topology=topology(8)))
    saw = f"{COMPAT} of driver 535.104.05 is searched first · driver 550.54.15"
    assert (finding.code, finding.saw) == ("compat-misplaced", saw)


def test_observe_survives_a_hostile_environment(node: Path) -> None:
    environ = {
        "CUDA_VISIBLE_DEVICES": "\udcff0," * 3000,
        "NVIDIA_VISIBLE_DEVICES": "{x}" * 5000,
        "SLURM_GPUS_ON_NODE": "9" * 5000,
        "SLURM_STEP_TASKS_PER_NODE": "-(x",
    }
    seen = nvml.observed("gpu.visible", nvml.settings(8), root=node, environ=environ).value
    assert len(seen.mask) == len(seen.image) == MASK
    json.dumps(encode(seen), ensure_ascii=False).encode()
    judged(gpu_visible, Case("", seen))


def test_observe_a_lost_gpu(node: Path) -> None:
    seen = nvml.observed("gpu.visible", nvml.settings(8, {"gpu5.error": 15}), root=node)
    assert [g.error for g in seen.value.answer.gpus] == [0] * 5 + [15, 0, 0]
    # NVML gives no address for it: on the bus it is the one that nobody lists
    assert [p.bus for p in seen.value.unlisted] == ["0000:68:00.0"]
    findings = judged(gpu_visible, Case("", seen.value, topology=topology(8)))
    assert [(f.code, str(f.subjects[0]), f.subjects[0].ranks) for f in findings] == [
        ("gpu-lost", "n1 · GPU 5", (5,))
    ]


def test_a_hang_that_the_kernel_has_logged_names_the_gpu() -> None:
    marks = "xid 119 0000:38:00.0", "xid 9999999999 no", "nvmlInit", "device 2"
    (found,) = judged(gpu_visible, Case("", silent(Cause.TIMED_OUT, *marks)))
    assert (found.code, found.confidence) == ("driver-hangs", Confidence.CERTAIN)
    assert [str(subject) for subject in found.subjects] == [
        "n1 · NVIDIA driver",
        "n1 · 0000:38:00.0",
    ]
    assert "Xid 119 (GSP firmware does not answer) of GPU 0000:38:00.0" in found.saw
    assert "no" not in found.saw.split()


def test_the_mask_that_is_proposed_is_in_the_order_that_cuda_goes_by() -> None:
    """By UUID the mask's own order counts; numbers would be CUDA's, the fastest first."""
    four = topology(3)
    (by_address,) = judged(gpu_visible, Case("", display(None), topology=four))
    (by_uuid,) = judged(
        gpu_visible, Case("", display("GPU-0a,GPU-1a,GPU-2a,GPU-3a", ""), topology=four)
    )
    assert {by_address.code, by_uuid.code} == {"models-mixed"}
    assert by_address.advice is not None
    assert by_uuid.advice is not None
    assert by_address.advice.now == "export CUDA_VISIBLE_DEVICES=1,2,3"
    assert not by_uuid.advice.now


def test_observe_what_the_kernel_has_logged(node: Path) -> None:
    """Of a driver that may hang: the critical ones of the last hour, before NVML is asked."""
    up = 90_000.0
    (node / "proc/uptime").write_text(f"{up} 1.0\n")
    told = (("79", 60.0), ("31", 30.0), ("119", 4000.0))
    (node / "dev/kmsg").write_text(
        "".join(
            f"3,{n},{int((up - ago) * 1e6)},-;NVRM: Xid (PCI:0000:38:00): {code}, pid=7\n"
            for n, (code, ago) in enumerate(told)
        )
    )
    seen = nvml.observed("gpu.visible", nvml.settings(8), root=node)
    assert seen.marks[1:4] == ("/dev/kmsg", "xid 79 0000:38:00.0", "nvmlInit")


def test_observe_a_gpu_that_nvml_leaves_out(node: Path) -> None:
    seen = nvml.observed("gpu.visible", nvml.settings(7), root=node)
    assert_case(gpu_visible, Case("", seen.value, "gpu-lost", FAIL, subject="n1 · 0000:88:00.0"))


def test_observe_what_a_container_was_not_given(node: Path) -> None:
    for number in range(2, 8):
        (node / f"dev/nvidia{number}").unlink()
    seen = nvml.observed("gpu.visible", nvml.settings(2), root=node)
    assert (seen.value.withheld, seen.value.unlisted) == (6, ())
    assert_case(gpu_visible, Case("", seen.value, topology=topology(2, launcher="torchrun")))


def test_observe_a_version_mismatch(node: Path) -> None:
    (node / "usr/lib64").mkdir(parents=True)
    (node / "usr/lib64/libnvidia-ml.so.570.124.06").touch()
    scenario = nvml.settings(8, {"error.nvmlInit": 18})
    seen = nvml.observed("gpu.visible", scenario, root=node)
    assert seen.value.answer.code == 18
    assert seen.value.libraries == ("libnvidia-ml.so.570.124.06",)
    assert_case(gpu_visible, Case("", seen.value, "driver-mismatch", FAIL))


@pytest.mark.parametrize("code", [9, 999, 4])
def test_observe_a_driver_that_refuses(node: Path, code: int) -> None:
    seen = nvml.observed("gpu.visible", nvml.settings(8, {"error.nvmlInit": code}), root=node)
    expected = {9: "gpus-not-exposed", 999: "no-access", 4: "gpu-permission-denied"}[code]
    assert_case(gpu_visible, Case("", seen.value, expected))


def test_observe_stops_asking_when_it_is_slow(node: Path) -> None:
    """The rest of the GPUs stay unasked, so that a slow start is not taken for a hang."""
    scenario = nvml.settings(8, {"sleep_ms.nvmlDeviceGetName": 200, "persistence": 0})
    seen = nvml.observed("gpu.visible", scenario, root=node, seconds=1.0)
    assert seen.value.answer.count == 8
    assert 1 <= len(seen.value.answer.gpus) < 8
    assert_case(gpu_visible, Case("", seen.value, "nvml-slow", WARN, topology=topology(8)))


def test_observe_a_slow_init(node: Path) -> None:
    seen = nvml.observed("gpu.visible", nvml.settings(8, {"sleep_ms.nvmlInit": 300}), root=node)
    assert seen.value.answer.seconds >= 0.3
    assert len(seen.value.answer.gpus) == 8


def test_observe_old_driver_and_what_it_can_not_tell(node: Path) -> None:
    scenario = nvml.settings(8, {"error.nvmlDeviceGetMigMode": 3, "error.nvmlDeviceGetName": 13})
    seen = nvml.observed("gpu.visible", scenario, root=node)
    assert {(g.mig, g.name, g.error) for g in seen.value.answer.gpus} == {(None, "", 0)}
    assert_case(gpu_visible, Case("", seen.value, topology=topology(8)))


def test_an_error_of_the_shutdown_loses_nothing(node: Path) -> None:
    scenario = nvml.settings(8, {"error.nvmlShutdown": 999})
    seen = nvml.observed("gpu.visible", scenario, root=node)
    assert (seen.value.answer.code, len(seen.value.answer.gpus)) == (0, 8)


def _reads(process: object, line: str) -> Iterator[str]:
    """The marks of a process until `line` comes."""
    for read in process.stderr:  # type: ignore[attr-defined]
        yield read.strip()
        if read.strip() == line:
            return


def test_a_hang_is_known_by_its_last_mark(node: Path) -> None:
    process = nvml.start(
        "gpu.visible", nvml.settings(8, {"gpu3.hang.nvmlDeviceGetName": 1}), root=node
    )
    try:
        marks = list(_reads(process, "device 3"))
        assert marks[-1] == "device 3"
        time.sleep(0.3)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    missing = Missing(
        Cause.TIMED_OUT, seconds=5.0, marks=tuple(Mark(m, 0.1 * i) for i, m in enumerate(marks))
    )
    (finding,) = judged(gpu_visible, Case("", missing))
    assert finding.saw.startswith("device 3 did not return in")


def test_a_crash_of_the_library_ends_the_process_only(node: Path) -> None:
    scenario = nvml.settings(8, {"crash.nvmlDeviceGetCount": 1})
    process = nvml.start("gpu.visible", scenario, root=node)
    _, marks = process.communicate(timeout=60)
    assert process.returncode == -11
    assert marks.splitlines()[-1] == "nvmlDeviceGetCount"


def test_a_mask_that_names_a_gpu_twice_is_corrected_where_the_ranks_still_fit() -> None:
    (enough,) = judged(gpu_visible, Case("", but(mask="2,0,2"), topology=topology(2)))
    (short,) = judged(gpu_visible, Case("", but(mask="2,0,2"), topology=topology(3)))
    assert enough.fields["once"] == "2,0"
    assert not short.fields["once"]


def test_gpus_of_another_driver_are_named() -> None:
    held = tuple(pci(n, driver="vfio-pci", minor=None) for n in (4, 5))
    saw = but(pci=(*FINE.pci, *held))
    for ranks, expect, code in ((6, {}, "too-few-gpus"), (4, {"gpus_per_node": 6}, "gpu-count")):
        case = Case("", saw, code, topology=topology(ranks), expect=expect)
        (finding,) = judged(gpu_visible, case)
        assert "0000:58:00.0, 0000:68:00.0 held by vfio-pci" in finding.saw
        assert finding.alternatives == (
            "the GPUs that vfio-pci holds are meant for this job: bind them to nvidia",
        )


@pytest.mark.parametrize("instances", [0, 2])
def test_observe_counts_the_instances_of_a_gpu(node: Path, instances: int) -> None:
    scenario = nvml.settings(4, {"gpu2.mig": 1, "gpu2.mig_devices": instances})
    seen = nvml.observed("gpu.visible", scenario, root=node)
    assert [g.instances for g in seen.value.answer.gpus] == [None, None, instances, None]
    assert not any(g.mig_names for g in seen.value.answer.gpus), "nobody names one"


@pytest.mark.parametrize(
    "untold", ["", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId"]
)
def test_observe_reads_the_names_of_mig_devices_where_the_mask_has_one(
    node: Path, untold: str
) -> None:
    scenario = {"gpu2.mig": 1, "gpu2.mig_devices": 2} | ({f"error.{untold}": 13} if untold else {})
    environ = {"CUDA_VISIBLE_DEVICES": "MIG-0"}
    seen = nvml.observed("gpu.visible", nvml.settings(4, scenario), root=node, environ=environ)
    of_gpu, tail = "1a2b3c02-5f9e-4c1d-8a3b", "0123456789ab"
    names = tuple(
        name
        for number in (0, 1)
        for name in (f"MIG-{of_gpu}-{number:012}", f"MIG-GPU-{of_gpu}-{tail}/{7 + number}/0")
    )
    expected = None if untold else names
    assert [g.mig_names for g in seen.value.answer.gpus] == [None, None, expected, None]


def test_ranks_that_share_a_gpu_may_have_a_share_of_it() -> None:
    shared = Case("", replace(FINE, mps=True, share=50.0), topology=topology(8))
    assert [f.code for f in judged(gpu_visible, shared)] == ["too-few-gpus"]
