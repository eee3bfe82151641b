"""gpu.health: GPUs that are sick, slow or taken, on machines of many kinds; nothing where all are
well. The machines are a table of their own: lab/gpu_machines.py."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import nvml
from lab.gpu_machines import FAULTY, GIB, H100, HEALTHY, UP, Machine, xid
from support import amd_cases
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import conforms
from preflight.checks import gpu_health
from preflight.domains.gpu.vitals import GpuProcess, NvSwitchFabric, Vitals, VitalsListing
from preflight.domains.gpu.xid import Xid, XidLog
from preflight.domains.kernel_log import DeviceError
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
    Topology,
)

conforms(gpu_health)

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
REFUSED = XidLog(refused="/dev/kmsg: Operation not permitted")


def gpu(index: int, **changes: Any) -> Vitals:
    well = Vitals(
        index,
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-{index}a",
        bus=f"0000:{0x18 + 0x10 * index:02x}:00.0",
        virtual=0,
        persistent=True,
        volatile=0,
        aggregate=0,
        rows=0,
        remap_pending=False,
        remap_failed=False,
        recovery=0,
        power_limit=700_000,
        ecc=True,
        clock=1980,
        generation_max=5,
        brakes=0,
        temperature=34,
        slowdown_at=87,
        width=16,
        width_max=16,
        memory=80 * GIB,
        used=500 << 20,
        fabric=NvSwitchFabric(3, 0, 0x51AA, 1),
    )
    return replace(well, **changes)


def seen(*gpus: Vitals, **changes: Any) -> gpu_health.Health:
    gpus = gpus or tuple(map(gpu, range(4)))
    made = gpu_health.Health(
        told=VitalsListing(len(gpus), gpus),
        log=XidLog(),
        uptime=UP,
        bus=tuple(f"0000:{0x18 + 0x10 * i:02x}:00.0" for i in range(4)),
        mask=None,
        job="",
        tasks=0,
    )
    return replace(made, **changes)


def one(index: int = 2, **changes: Any) -> gpu_health.Health:
    """Four GPUs, one of them different."""
    return seen(*(gpu(i, **(changes if i == index else {})) for i in range(4)))


def every(**changes: Any) -> gpu_health.Health:
    return seen(*(gpu(i, **changes) for i in range(4)))


def silent(cause: Cause, *marks: str, detail: str = "") -> Missing:
    made = tuple(Mark(name, 0.01) for name in ("/sys/bus/pci", *marks))
    return Missing(cause, detail, seconds=4.0, marks=made)


HANGS = "nvmlDeviceGetTotalEccErrors of GPU 3"
LOST = {"nvmlDeviceGetTotalEccErrors": 15}
OTHERS = (GpuProcess(77, "python", 1001, 6 * GIB),)
SXID = DeviceError("0000:c1:00.0", "SXid 24007 (fatal): Link 44 sourcetrack", True, 1, 60.0)
AER = DeviceError("0000:16:01.0", "uncorrected (non-fatal) PCIe error", False, 2, 60.0)
CORRECTED = "corrected PCIe error"
OLD, NEW = "96.00.61.00.01", "96.00.74.00.01"
RACK_1, RACK_2 = "a1" * 16, "b2" * 16
NODES = tuple(f"n{i}" for i in range(1, 25))


def nodes_of(*seen: gpu_health.Health) -> dict[str, gpu_health.Health]:
    return dict(zip(NODES, seen, strict=False))


def job(nodes: int) -> Topology:
    each = tuple(Node(name, (i,)) for i, name in enumerate(NODES[:nodes]))
    return topology(nodes, nodes=each)


def tray(cluster: str = RACK_1, clique: int = 1) -> gpu_health.Health:
    return every(name="NVIDIA GB200", fabric=NvSwitchFabric(3, 0, 0x51AA, 1, cluster, clique))


def across(
    name: str, *seen: gpu_health.Health, code: str | None = None, subject: str | None = None
) -> Case:
    status = None if code is None else WARN
    return Case(name, nodes_of(*seen), code, status, topology=job(len(seen)), subject=subject)


def on_channels(*channels: int | None, **changes: Any) -> tuple[gpu_health.Health, ...]:
    """Trays of one domain with so many IMEX channels each."""
    return tuple(replace(tray(), channels=count, **changes) for count in channels)


def imex(name: str, *seen: gpu_health.Health, code: str | None = None, of: str = "") -> Case:
    status = FAIL if code else None
    return Case(name, nodes_of(*seen), code, status, topology=job(len(seen)), subject=of or None)


CHANNEL = "imex-channel-missing"
TRAYS = (
    imex("a tray of two without a channel", *on_channels(1, 0), code=CHANNEL, of="n2"),
    imex("no tray has one", *on_channels(0, 0), code=CHANNEL, of="n1"),
    imex("in a container", *on_channels(1, 0, inside="docker"), code=CHANNEL, of="n2"),
    imex("each has a channel", *on_channels(1, 1)),
    imex("NCCL told not to use NVLink between nodes", *on_channels(None, None)),
    imex("one tray alone", *on_channels(0)),
    imex("trays of two racks", *on_channels(0), replace(tray(RACK_2), channels=0)),
    imex("boards of one node each", replace(tray(""), channels=None), replace(tray(""))),
    Case(
        "one tray, and NCCL told to use it in any case",
        on_channels(0, forced=True)[0],
        CHANNEL,
        FAIL,
        topology=topology(4),
    ),
    Case("the same with one rank", on_channels(0, forced=True)[0], topology=topology(1)),
)
VBIOS, DOMAIN = "vbios-differs", "nvlink-domain-differs"
PEERS = (
    Case(
        "one GPU of a box has an older VBIOS",
        seen(*(gpu(i, vbios=OLD if i == 2 else NEW) for i in range(4))),
        VBIOS,
        WARN,
        subject="n1 · GPU 2",
    ),
    across(
        "a node that missed the update of the VBIOS",
        *(every(vbios=v) for v in (NEW, OLD, NEW)),
        code=VBIOS,
        subject="n2",
    ),
    across(
        "two nodes with a VBIOS each: nobody can tell",
        *(every(vbios=v) for v in (NEW, OLD)),
        code=VBIOS,
        subject="n1",
    ),
    across(
        "a node with fewer GPUs is as much of a party as one with more",
        every(vbios=NEW),
        seen(gpu(0, vbios=OLD)),
        code=VBIOS,
        subject="n1",
    ),
    across("one VBIOS everywhere", *(every(vbios=NEW) for _ in range(3))),
    across(
        "boards of two makers have a VBIOS of their own",
        *(every(vbios=v, board=b) for v, b in ((NEW, 1), (OLD, 2), (NEW, 1))),
    ),
    Case(
        "one GPU with thousands of corrected errors",
        seen(*(gpu(i, corrected=48_211 if i == 1 else i) for i in range(4))),
        "corrected-errors",
        WARN,
        subject="n1 · GPU 1",
    ),
    Case(
        "hundreds on one of them", seen(*(gpu(i, corrected=800 if i == 1 else 0) for i in range(4)))
    ),
    Case("thousands on all of them", seen(*(gpu(i, corrected=2_000 + 900 * i) for i in range(4)))),
    Case(
        "two GPUs: nobody can tell what is usual",
        seen(*(gpu(i, corrected=9_000 * i) for i in range(2))),
    ),
    across("a rack", *(tray() for _ in range(4))),
    across("two racks of equal size", *(tray(r) for r in (RACK_1,) * 3 + (RACK_2,) * 3)),
    across("two racks, most in the first", *(tray(r) for r in (RACK_1,) * 4 + (RACK_2,) * 2)),
    across("two trays, each of a rack of its own", tray(), tray(RACK_2)),
    across(
        "a job that is larger than a rack by one tray", *(tray() for _ in range(18)), tray(RACK_2)
    ),
    across("two partitions of one rack", *(tray(clique=c) for c in (1, 1, 1, 2, 2))),
    across("trays without a domain", *(tray("") for _ in range(3))),
    across("HGX nodes beside a rack", tray(), tray(), every(), every()),
    across(
        "a tray in another partition of the rack",
        *(tray(clique=c) for c in (1, 1, 2, 1)),
        code=DOMAIN,
        subject="n3",
    ),
    across(
        "a tray that is in no domain",
        *(tray(r) for r in (RACK_1, "", RACK_1)),
        code=DOMAIN,
        subject="n2",
    ),
    across(
        "a tray of another rack, where all would fit into one",
        *(tray(r) for r in (RACK_1, RACK_1, RACK_1, RACK_2)),
        code=DOMAIN,
        subject="n4",
    ),
    across("two trays, one in no domain", tray(), tray(""), code=DOMAIN, subject="n1"),
    across("two trays of one rack in a partition each", tray(), tray(clique=2), code=DOMAIN),
    Case(
        "a GPU in another clique than the rest of its tray",
        seen(
            *(
                gpu(
                    i,
                    name="NVIDIA GB200",
                    fabric=NvSwitchFabric(3, 0, 0x51AA, 1, RACK_1, 1 + (i == 3)),
                )
                for i in range(4)
            )
        ),
        DOMAIN,
        WARN,
        subject="n1 · GPU 3",
    ),
)
CASES = (
    Case("healthy", seen()),
    Case("nothing was seen", {}),
    Case("no GPU", Missing(Cause.NOT_APPLICABLE, "no NVIDIA GPU or driver here")),
    Case("can't look", Missing(Cause.CANNOT_OBSERVE, "no nvidia-ml-py")),
    Case("nothing is told", seen(*(Vitals(i) for i in range(4)))),
    Case("the kernel log is not readable", seen(log=REFUSED)),
    Case(
        "NVML starts slowly the second time",
        silent(Cause.TIMED_OUT, "nvmlInit"),
        "health-unknown",
        Status.UNDECIDED,
    ),
    Case("it does not start", silent(Cause.UNKILLABLE, "nvmlInit"), "nvml-hangs", FAIL),
    Case("a call hangs", silent(Cause.TIMED_OUT, HANGS), "nvml-hangs", FAIL, subject="n1 · GPU 3"),
    Case(
        "its start hangs",
        silent(Cause.UNKILLABLE, "nvmlInit"),
        "nvml-hangs",
        FAIL,
        subject="n1 · NVIDIA driver",
    ),
    Case("too busy a machine: can't tell", silent(Cause.TIMED_OUT)),
    Case("the kernel log hangs: can't tell", silent(Cause.TIMED_OUT, HANGS, "/dev/kmsg")),
    Case("a call crashes", silent(Cause.CRASHED, HANGS), "nvml-crashes", UNDECIDED),
    Case("our own fault", silent(Cause.CRASHED, HANGS, detail="Traceback …\nKeyError: 1")),
    Case("lost", one(failed=LOST), "gpu-lost", FAIL, subject="n1 · GPU 2"),
    Case("the rows are used up", one(remap_failed=True), "rows-exhausted", FAIL),
    Case("a remap is pending", one(remap_pending=True), "remap-pending", FAIL),
    Case("half of the memory", one(memory=40 * GIB, used=0), "memory-differs", WARN),
    Case("some MiB kept back for spare pages", one(memory=80 * GIB - (64 << 20))),
    Case("memory errors", one(volatile=3, recovery=None), "memory-errors", FAIL),
    Case("memory errors, dealt with", one(volatile=3), "memory-errors", WARN),
    Case("old memory errors", every(aggregate=12, rows=3)),
    Case("a reset is wanted", one(recovery=1), "recovery-needed", FAIL),
    Case("an action of tomorrow", one(recovery=99), "recovery-needed", FAIL),
    Case(
        "Xid",
        replace(one(recovery=None), log=XidLog((Xid(gpu(2).bus, 119, 3, 60.0),))),
        "xid",
        FAIL,
    ),
    *(
        Case(
            f"Xid {code}, which NVML need not have counted",
            replace(one(recovery=None, volatile=0), log=XidLog((Xid(gpu(2).bus, code, 1, 1.0),))),
            "xid",
            FAIL,
        )
        for code in (64, 140)
    ),
    *(
        Case(
            f"Xid {code}, and the driver wants nothing done any more",
            replace(one(recovery=0), log=XidLog((Xid(gpu(2).bus, code, 1, 900.0),))),
            "xid",
            WARN,
        )
        for code in (62, 64, 140)
    ),
    Case(
        "Xid 48, and the count that it came with is 0 again",
        replace(one(recovery=None, volatile=0), log=XidLog((Xid(gpu(2).bus, 48, 1, 900.0),))),
        "xid",
        WARN,
    ),
    Case(
        "Xid of yesterday", replace(one(recovery=None), log=XidLog((Xid(gpu(2).bus, 119, 3, 9e4),)))
    ),
    Case("Xid of a GPU of others", seen(log=XidLog((Xid("0000:e8:00.0", 119, 1, 60.0),)))),
    Case("another mask", replace(one(0, recovery=1), mask="2,3"), "recovery-needed", WARN),
    Case("all tasks", replace(one(recovery=1), mask="0", tasks=4), "recovery-needed", FAIL),
    Case(
        "all tasks of the half",
        replace(one(recovery=1), mask="0", tasks=2, job="0,1"),
        "recovery-needed",
        WARN,
    ),
    Case("power brake", every(brakes=0x88), "clocks-throttled", WARN),
    Case("as hot as can be", one(temperature=87), "too-hot", WARN),
    Case("warm", every(temperature=86)),
    Case(
        "memory at the driver's limit",
        one(memory_temperature=95, memory_max=95),
        "too-hot",
        WARN,
        subject="n1 · GPU 2",
    ),
    Case("warm memory", every(memory_temperature=94, memory_max=95)),
    Case(
        "memory that is hotter than that of its peers, and no limit is known",
        seen(*(gpu(i, memory_temperature=106 if i == 2 else 55) for i in range(4))),
        "too-hot",
        WARN,
        subject="n1 · GPU 2",
    ),
    Case("all memory is hot, and no limit is known", every(memory_temperature=96)),
    Case(
        "hot memory of two alone",
        seen(gpu(0, memory_temperature=55), gpu(1, memory_temperature=106)),
    ),
    Case(
        "memory that is warmer than that of its peers",
        seen(*(gpu(i, memory_temperature=88 if i == 2 else 55) for i in range(4))),
    ),
    Case("half the power", one(power_limit=350_000), "settings-differ", WARN, subject="n1 · GPU 2"),
    Case("all at half the power", every(power_limit=350_000)),
    Case(
        "half of them at half the power: no majority",
        seen(*(gpu(i, power_limit=350_000 + 350_000 * (i % 2)) for i in range(4))),
    ),
    Case("ECC is off on one", one(ecc=False), "settings-differ", WARN),
    Case("one has other clocks", one(clock=1410), "settings-differ", WARN),
    Case("one is in a slot of an older PCIe", one(generation_max=4), "settings-differ", WARN),
    Case("nobody tells of its clock", every(clock=None)),
    Case("another model beside them", one(name="NVIDIA T400", power_limit=30_000)),
    Case("x8", one(width=8), "pcie-downgraded", WARN, subject="n1 · GPU 2"),
    Case("a slot of x8", every(width=8, width_max=8)),
    Case("a virtual machine's slot", every(width=0, width_max=0)),
    Case("no fabric manager", every(fabric=NvSwitchFabric(1)), "fabric-down", FAIL),
    Case(
        "a tray of GB200",
        every(name="NVIDIA GB200", fabric=NvSwitchFabric(1)),
        "nvlink-domain-down",
        FAIL,
    ),
    Case(
        "one GPU of such a tray",
        seen(gpu(0, name="NVIDIA GB300", fabric=NvSwitchFabric(1))),
        "nvlink-domain-down",
        WARN,
    ),
    Case(
        "such a tray just after boot",
        replace(every(name="NVIDIA GB200", fabric=NvSwitchFabric(2)), uptime=90.0),
        "nvlink-domain-down",
        UNDECIDED,
    ),
    Case("one GPU of eight", seen(gpu(0, fabric=NvSwitchFabric(1))), "fabric-down", WARN),
    Case(
        "the fabric just after boot",
        replace(every(fabric=NvSwitchFabric(2)), uptime=90.0),
        "fabric-down",
        UNDECIDED,
    ),
    Case("the fabric is late", every(fabric=NvSwitchFabric(2)), "fabric-down", FAIL),
    Case("no such fabric", every(fabric=NvSwitchFabric(0))),
    Case("a bad route", one(fabric=NvSwitchFabric(3, 0, 0x10)), "fabric-unhealthy", FAIL),
    Case("an unhealthy fabric", one(fabric=NvSwitchFabric(3, 0, 0, 2)), "fabric-unhealthy", WARN),
    Case("a driver without health", every(fabric=NvSwitchFabric(3))),
    Case(
        "a fatal error of an NVSwitch",
        replace(every(recovery=None), log=XidLog(switches=(SXID,))),
        "nvswitch-errors",
        FAIL,
        subject="n1 · NVSwitch 0000:c1:00.0",
    ),
    Case(
        "GPUs want nothing since",
        replace(every(), log=XidLog(switches=(SXID,))),
        "nvswitch-errors",
        WARN,
    ),
    Case(
        "one that is not fatal",
        replace(every(), log=XidLog(switches=(replace(SXID, fatal=False),))),
        "nvswitch-errors",
        WARN,
    ),
    Case("one of yesterday", replace(every(), log=XidLog(switches=(replace(SXID, age=9e4),)))),
    Case(
        "an Xid of a GPU that no rank uses",
        replace(every(recovery=None), log=XidLog((Xid(gpu(3).bus, 119, 1, 60.0),)), mask="0,1"),
        "xid",
        WARN,
        topology=topology(2),
    ),
    Case(
        "an error of NVLink",
        replace(every(), log=XidLog((Xid(gpu(2).bus, 74, 1, 60.0),))),
        "nvlink-errors",
        WARN,
        subject="n1 · GPU 2",
    ),
    Case(
        "the bridge above a GPU",
        replace(every(), log=XidLog(links=(AER,)), above={gpu(1).bus: ("0000:16:01.0",)}),
        "pcie-errors",
        WARN,
        subject="n1 · GPU 1",
    ),
    Case("a bridge above something else", replace(every(), log=XidLog(links=(AER,)))),
    Case(
        "a flood of corrected errors",
        replace(every(), log=XidLog(links=(DeviceError(gpu(3).bus, CORRECTED, False, 900, 5.0),))),
        "pcie-errors",
        WARN,
        subject="n1 · GPU 3",
    ),
    Case(
        "some corrected errors",
        replace(every(), log=XidLog(links=(DeviceError(gpu(3).bus, CORRECTED, False, 20, 5.0),))),
    ),
    Case("taken", one(used=6 * GIB, processes=OTHERS), "gpu-busy", WARN),
    Case("70 of 80 GiB taken", one(used=70 * GIB, processes=OTHERS), "gpu-busy", FAIL),
    Case("half of it taken", one(used=40 * GIB, processes=OTHERS), "gpu-busy", WARN),
    Case(
        "somebody holds a GPU in exclusive mode",
        one(used=GIB, processes=(GpuProcess(77, "python", 1001, 400 << 20),), compute_mode=3),
        "gpu-busy",
        FAIL,
    ),
    Case(
        "a client of MPS in exclusive mode",
        one(used=GIB, processes=(GpuProcess(77, "app", 1, 400 << 20),), compute_mode=3, mps=True),
    ),
    Case("exclusive mode, and nobody on it", one(compute_mode=3)),
    Case("full", one(used=79 * GIB, processes=OTHERS), "gpu-busy", FAIL),
    Case("a small program", one(used=900 << 20, processes=(replace(OTHERS[0], memory=300 << 20),))),
    Case("taken by nobody", one(used=30 * GIB), "gpu-busy", WARN),
    Case("taken by ourselves", one(used=30 * GIB, ours=1)),
    Case("taken, but not ours", replace(one(0, used=79 * GIB, processes=OTHERS), mask="1")),
    Case(
        "corrupt InfoROM", one(failed={"nvmlDeviceGetTotalEccErrors": 14}), "inforom-corrupt", WARN
    ),
    Case("an odd error", one(failed={"nvmlDeviceGetName": 999}), "health-unknown", UNDECIDED),
    Case(
        "no permission",
        every(refused=("nvmlDeviceGetTotalEccErrors",)),
        "health-unknown",
        UNDECIDED,
    ),
    Case("no permission with MIG", every(refused=("nvmlDeviceGetTotalEccErrors",), mig=True)),
    Case(
        "no time",
        seen(told=VitalsListing(8, tuple(map(gpu, range(4))))),
        "health-unknown",
        UNDECIDED,
    ),
    *PEERS,
    *TRAYS,
    *amd_cases.HEALTH,
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(gpu_health, case)


def test_what_speaks_against_one_gpu_is_one_finding() -> None:
    changes = {"volatile": 2, "remap_pending": True, "recovery": 1}
    saw = replace(one(**changes), log=XidLog((Xid(gpu(2).bus, 95, 1, 60.0),)))
    (found,) = judged(gpu_health, Case("", saw, topology=topology(4)))
    assert (found.code, found.blame, found.subjects[0].ranks) == ("remap-pending", Blame.NODE, (2,))
    for part in (
        "remap is pending",
        "2 uncorrectable",
        "a reset of the GPU",
        "Xid 95 (uncontained",
    ):
        assert part in found.saw


def test_the_same_of_all_gpus_is_one_finding() -> None:
    (found,) = judged(gpu_health, Case("", every(fabric=NvSwitchFabric(1))))
    assert [s.name for s in found.subjects] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]


def test_who_is_blamed() -> None:
    """No node is drained for programs of others, nor for what its whole domain needs."""
    cases = (every(fabric=NvSwitchFabric(2)), one(used=79 * GIB, processes=OTHERS), one(recovery=5))
    found = [judged(gpu_health, Case("", saw))[0] for saw in cases]
    assert [f.blame for f in found] == [Blame.NODE, Blame.UNKNOWN, Blame.UNKNOWN]


@pytest.mark.parametrize("code", [VBIOS, DOMAIN])
def test_of_two_that_differ_both_are_said(code: str) -> None:
    saw = {VBIOS: (every(vbios=NEW), every(vbios=OLD)), DOMAIN: (tray(), tray(clique=2))}[code]
    (found,) = judged(gpu_health, across("", *saw))
    assert [s.node for s in found.subjects] == ["n1", "n2"]
    assert (found.blame, found.confidence) == (Blame.UNKNOWN, Confidence.POSSIBLE)
    assert found.alternatives == ("n1 is the one that differs", "n2 is the one that differs")


def test_a_tray_from_another_rack_may_be_all_that_was_free() -> None:
    saw = tuple(tray(r) for r in (RACK_1, RACK_1, RACK_2))
    (found,) = judged(gpu_health, across("", *saw))
    assert (found.blame, len(found.alternatives)) == (Blame.UNKNOWN, 1)


def test_the_row_says_what_was_not_readable() -> None:
    saw = replace(every(persistent=False), log=REFUSED)
    measured = gpu_health.measured(world("gpu.health", saw))
    assert measured.text == (
        "4 GPUs · 34 °C · ECC 0 · x16 · kernel log unreadable · persistence off on 4"
    )


# --- machines ---


def tree(root: Path, machine: Machine) -> Path:
    """The files of a machine with these GPUs."""
    nvml.machine(root, int(str(machine.scenario["count"])))
    (root / "proc/uptime").write_text(f"{UP:.2f} 1.00\n")
    (root / "dev/kmsg").write_text("".join(f"{line}\n" for line in machine.log))
    for pid, name in ((77, "python"), (78, "nvidia-cuda-mps")):
        (root / f"proc/{pid}").mkdir()
        (root / f"proc/{pid}/comm").write_text(name + "\n")
    return root


def observed(root: Path, machine: Machine, **more: Any) -> nvml.Observed:
    made = tree(root, machine)
    return nvml.observed("gpu.health", machine.scenario, root=made, environ=machine.environ, **more)


@pytest.mark.parametrize("machine", HEALTHY, ids=str)
def test_a_healthy_machine(machine: Machine, tmp_path: Path) -> None:
    saw = observed(tmp_path, machine).value
    round_trips(saw)
    assert saw.told.count == len(saw.told.gpus) == machine.scenario["count"]
    assert not saw.log.refused
    assert_case(gpu_health, Case("", saw, topology=topology(min(2, saw.told.count))))


@pytest.mark.parametrize("machine", FAULTY, ids=str)
def test_a_faulty_machine(machine: Machine, tmp_path: Path) -> None:
    saw = observed(tmp_path, machine).value
    round_trips(saw)
    found = judged(gpu_health, Case("", saw, topology=topology(saw.told.count)))
    assert [f.code for f in found] == [machine.code]
    assert found[0].status == machine.status
    assert found[0].subjects[0].name == machine.subject


def test_there_are_machines_of_every_kind() -> None:
    named = " ".join(str(m.scenario.get("name", "H100")) for m in (*HEALTHY, *FAULTY))
    assert len(HEALTHY) + len(FAULTY) >= 25
    for model in ("A100", "H100", "L4", "RTX 4090", "GB200", "A16-8C", "V100"):
        assert model in named
    assert any(m.scenario.get("mig") for m in HEALTHY)


def test_what_is_observed(tmp_path: Path) -> None:
    changes = {"gpu2.processes": f"77:{5 * GIB},4000000:0", "gpu2.field.230": 4, "count": 4}
    machine = Machine("", {**H100, **changes}, log=(xid(60, 95), xid(7, 95)))
    got = observed(tmp_path, machine)
    vitals = got.value.told.gpus[2]
    assert vitals.processes == (
        GpuProcess(77, "python", tmp_path.stat().st_uid, 5 * GIB),
        GpuProcess(4000000, "", None, 0),
    )
    assert (vitals.recovery, vitals.bus) == (4, "0000:38:00.0")
    assert vitals.fabric == NvSwitchFabric(3, 0, 0x51AA, 1)
    assert (vitals.vbios, vitals.board, vitals.corrected) == (NEW, 0x16C110DE, 0)
    assert got.value.log == XidLog((Xid("0000:38:00.0", 95, 2, 7.0),))
    assert got.marks[:3] == ("/sys/bus/pci", "nvmlInit", "nvmlDeviceGetCount")
    assert "nvmlDeviceGetRemappedRows of GPU 3" in got.marks
    assert got.marks[-1] == "/dev/kmsg"


def test_a_program_of_this_job_is_no_stranger(tmp_path: Path) -> None:
    machine = Machine("", {**H100, "count": 1, "used": 40 * GIB, "processes": f"77:{39 * GIB}"})
    tree(tmp_path, machine)
    (tmp_path / "proc/self").mkdir()
    for process, step in (("self", "step_0"), ("77", "step_1")):
        path = f"0::/system.slice/slurmstepd.scope/job_812/{step}/user/task_0\n"
        (tmp_path / f"proc/{process}/cgroup").write_text(path)
    saw = nvml.observed("gpu.health", machine.scenario, root=tmp_path).value
    assert (saw.told.gpus[0].processes, saw.told.gpus[0].ours) == ((), 1)
    assert_case(gpu_health, Case("", saw, topology=topology(1)))


def test_what_it_said_until_it_was_lost_stays(tmp_path: Path) -> None:
    machine = Machine("", {**H100, "count": 2, "gpu1.error.nvmlDeviceGetFieldValues": 15})
    vitals = observed(tmp_path, machine).value.told.gpus[1]
    assert (vitals.gone, vitals.bus, vitals.temperature) == (15, "0000:28:00.0", None)


@pytest.mark.parametrize("call", ["nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetGpuFabricInfo"])
def test_a_call_that_hangs_is_named(call: str, tmp_path: Path) -> None:
    machine = Machine("", {**H100, f"gpu3.hang.{call}": 1})
    process = nvml.start("gpu.health", machine.scenario, root=tree(tmp_path, machine))
    marks: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            marks.append(line.strip())
            if call in line and line.strip().endswith("of GPU 3"):
                break
        time.sleep(0.3)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    (found,) = judged(gpu_health, Case("", silent(Cause.TIMED_OUT, *marks)))
    assert (found.code, str(found.subjects[0])) == ("nvml-hangs", "n1 · GPU 3")
    assert found.saw.startswith(call)
    assert found.confidence is Confidence.LIKELY


def test_a_call_that_crashes_is_named(tmp_path: Path) -> None:
    machine = Machine("", {**H100, "gpu3.crash.nvmlDeviceGetRemappedRows": 1})
    process = nvml.start("gpu.health", machine.scenario, root=tree(tmp_path, machine))
    _, marks = process.communicate(timeout=60)
    assert process.returncode == -11
    died = silent(Cause.CRASHED, *marks.splitlines()[1:], detail="killed by SIGSEGV")
    (found,) = judged(gpu_health, Case("", died))
    assert found.saw == "nvmlDeviceGetRemappedRows of GPU 3: killed by SIGSEGV"


def test_slow_answers_leave_gpus_unasked(tmp_path: Path) -> None:
    machine = Machine("", {**H100, "sleep_ms.nvmlDeviceGetTemperature": 300})
    saw = observed(tmp_path, machine, seconds=1.0).value
    assert 1 <= len(saw.told.gpus) < 8
    assert_case(gpu_health, Case("", saw, "health-unknown", UNDECIDED))


def test_without_a_gpu_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        gpu_health.observe(Host(str(tmp_path)), context())
    machine = Machine("", {"count": 0})
    assert observed(tmp_path, machine).raised == "NotApplicable"


@pytest.mark.parametrize("scenario", [{"count": 2, "error.nvmlInit": 18}, None], ids=str)
def test_a_driver_that_does_not_start(
    scenario: Mapping[str, object] | None, tmp_path: Path
) -> None:
    nvml.machine(tmp_path, 2)
    assert nvml.observed("gpu.health", scenario, root=tmp_path).raised == "CannotObserve"


@pytest.mark.parametrize(
    ("kind", "driver", "raised"),
    [
        ("0x030000", "nouveau", "NotApplicable"),
        ("0x030000", "", "CannotObserve"),
        ("0x030200", "nouveau", "CannotObserve"),
    ],
)
def test_a_card_for_the_screen(tmp_path: Path, kind: str, driver: str, raised: str) -> None:
    nvml.pci_device(tmp_path, "0000:01:00.0", kind=kind, driver=driver)
    assert nvml.observed("gpu.health", None, root=tmp_path).raised == raised


def test_a_copied_tree_can_not_answer(tmp_path: Path) -> None:
    nvml.machine(tmp_path, gpus=1)
    with pytest.raises(CannotObserve):
        gpu_health.observe(Host(str(tmp_path)), context())
