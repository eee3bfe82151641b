"""host.cpu: what takes CPUs away is named; a small machine by itself is silent."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import conforms
from preflight.checks import host_cpu
from preflight.domains.kernel_log import SoftLockup
from preflight.host import Host
from preflight.model import Blame, CannotObserve, Cause, Missing, Node, Status

conforms(host_cpu)

LAPTOP = host_cpu.Cpus(
    allowed="0-1",
    usable=2,
    online=2,
    offline=0,
    held_by="",
    quota=None,
    quota_at="",
    omp_threads=None,
    binding={},
    slurm_cpus=None,
    numa_all=(0,),
    numa_allowed=(0,),
    gpus=0,
    gpu_nodes=(),
    load=1.5,
)
BIG = dataclasses.replace(
    LAPTOP, allowed="0-63", usable=64, online=64, numa_all=(0, 1), numa_allowed=(0, 1)
)
GPUS = dataclasses.replace(BIG, gpus=4, gpu_nodes=(0, 0, 1, 1))


def but(cpus: host_cpu.Cpus, **changes: object) -> host_cpu.Cpus:
    return dataclasses.replace(cpus, **changes)


ONE = {"allowed": "0", "usable": 1, "held_by": "affinity mask", "numa_allowed": (0,)}
POD = {"quota": 2.0, "quota_at": "/sys/fs/cgroup"}

STUCK = SoftLockup(1, 22, "python", 120.0)


def stuck(**changes: object) -> host_cpu.Cpus:
    machine = {k: changes.pop(k) for k in ("virtual",) if k in changes}
    return but(BIG, lockups=(dataclasses.replace(STUCK, **changes),), **machine)  # type: ignore[arg-type]


CASES = (
    Case("a CPU that was stuck", stuck(virtual=False), "soft-lockup", Status.WARN, subject="n1"),
    Case("a CPU that was stuck, of who knows what machine", stuck(), "soft-lockup", Status.WARN),
    Case("a CPU that was stuck an hour ago", stuck(age=3600.0, before=3622.0)),
    Case("a virtual machine that was paused", stuck(virtual=True)),
    Case("one that was paused today and yesterday", stuck(virtual=True, before=9e4)),
    Case(
        "a CPU of a virtual machine that is stuck again and again",
        stuck(virtual=True, before=142.0),
        "soft-lockup",
        Status.WARN,
    ),
    Case("four ranks try the tool on two CPUs", LAPTOP),
    Case("the same in a container that may use 1.5 of two", but(LAPTOP, quota=1.5)),
    Case("big machine", BIG),
    Case("GPU machine", GPUS),
    Case("SMT off is no fault", but(GPUS, offline=64)),
    Case("a busy neighbour is a fact", but(BIG, load=500.0)),
    Case("no load average, no NUMA", but(BIG, load=None, numa_all=(), numa_allowed=())),
    Case("one core", but(BIG, **ONE), "pinned", Status.WARN, subject="n1"),
    Case("one core of two", but(LAPTOP, **ONE), "pinned", Status.WARN),
    Case("a machine of one core", but(LAPTOP, **ONE | {"online": 1, "held_by": ""})),
    Case("a core a GPU", but(GPUS, usable=4, held_by="x"), "pinned", Status.WARN),
    Case("a core a rank without GPUs", but(BIG, usable=4, held_by="x")),
    Case("one rank on one core", but(BIG, **ONE), topology=topology(1)),
    Case("one GPU rank on one core", but(GPUS, **ONE), "pinned", topology=topology(1)),
    Case("pod's CPU limit", but(BIG, **POD), "quota-low", Status.WARN),
    Case("pod's limit with GPUs", but(GPUS, **POD | {"quota": 7.5}), "quota-low"),
    Case("a wide quota", but(GPUS, **POD | {"quota": 8.0})),
    Case("GPU machine of four CPUs", but(LAPTOP, online=4, usable=4, gpus=4), "cpus-few"),
    Case("more ranks than GPUs on a laptop", but(LAPTOP, gpus=1)),
    Case("floor met", but(LAPTOP), expect={"cpus_per_rank": 0.5}),
    Case("floor", LAPTOP, "cpus-few", Status.FAIL, {"cpus_per_rank": 1}),
    Case("floor by mask", but(BIG, **ONE), "pinned", Status.FAIL, {"cpus_per_rank": 2}),
    Case("floor by quota", but(BIG, **POD), "quota-low", Status.FAIL, {"cpus_per_rank": 2}),
    Case("OpenMP binds", but(BIG, binding={"OMP_PROC_BIND": "close"}), "omp-bound", Status.WARN),
    Case("places bind", but(BIG, binding={"OMP_PLACES": "cores"}), "omp-bound"),
    Case("GNU's own", but(LAPTOP, binding={"GOMP_CPU_AFFINITY": "0-1"}), "omp-bound"),
    Case("binding is off", but(BIG, binding={"OMP_PROC_BIND": "FALSE", "OMP_PLACES": "cores"})),
    Case("wide places", but(BIG, binding={"OMP_PROC_BIND": "true", "OMP_PLACES": "sockets"})),
    Case("a bad policy binds nothing", but(BIG, binding={"OMP_PROC_BIND": "x"})),
    Case(
        "srun gives each rank its own mask",
        but(BIG, binding={"OMP_PROC_BIND": "true"}),
        topology=topology(4, launcher="slurm"),
    ),
    Case("one rank may bind", but(BIG, binding={"OMP_PROC_BIND": "1"}), topology=topology(1)),
    Case("one thread each", but(LAPTOP, omp_threads="1")),
    Case("all cores each", but(BIG, omp_threads="64"), "omp-many", Status.WARN),
    Case("nested levels", but(BIG, omp_threads="64,2"), "omp-many"),
    Case("16 threads each", but(BIG, omp_threads="16")),
    Case("no number", but(BIG, omp_threads="²")),
    Case("a huge number", but(BIG, omp_threads="9" * 80)),
    Case("loader", but(BIG), "loader-many", Status.WARN, {"loader_workers": 17}),
    Case("16 workers each", but(BIG), expect={"loader_workers": 16}),
    Case("CPUs of one socket", but(GPUS, usable=32, numa_allowed=(0,)), "numa-far", Status.WARN),
    Case("half of the GPUs", but(GPUS, numa_allowed=(0,)), topology=topology(2)),
    *(
        Case(f"the kernel reads {clock}", but(BIG, clock=clock), "clock-source-slow", Status.WARN)
        for clock in ("hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies")
    ),
    *(
        Case(f"the kernel reads {clock}", but(BIG, clock=clock, clocks=("tsc", clock)))
        for clock in (
            *("tsc", "tsc-early", "kvm-clock", "hyperv_clocksource_tsc_page", "xen"),
            *("hyperv_clocksource_msr", "arch_sys_counter", "timebase", "riscv_clocksource"),
        )
    ),
    Case("nobody looked", Missing(Cause.TIMED_OUT)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(host_cpu, case)


def test_each_culprit_is_named_and_only_that() -> None:
    pinned = but(BIG, **ONE, slurm_cpus="16")
    (finding,) = judged(host_cpu, Case("pinned", pinned))
    assert finding.saw == "affinity mask leaves 1 of 64 CPUs (0), for 4 ranks"
    assert "SLURM_CPUS_PER_TASK='16'" in finding.evidence
    both = but(BIG, **ONE, quota=0.5, quota_at="/sys/fs/cgroup")
    found = judged(host_cpu, Case("both", both))
    assert [f.code for f in found] == ["quota-low", "pinned"]
    (small,) = judged(host_cpu, Case("floor", LAPTOP, expect={"cpus_per_rank": 4}))
    assert (small.code, small.blame) == ("cpus-few", Blame.NODE)


@pytest.mark.parametrize(
    ("clocks", "more"),
    [(("hpet", "acpi_pm"), ", also available: acpi_pm"), (("hpet",), ", none other is there")],
)
def test_a_slow_clock_is_the_node_s_fault(clocks: tuple[str, ...], more: str) -> None:
    (finding,) = judged(host_cpu, Case("", but(BIG, clock="hpet", clocks=clocks)))
    assert finding.blame is Blame.NODE
    assert finding.saw == f"the kernel's clock source is hpet{more}"


def test_stuck_cpus_are_named() -> None:
    many = tuple(dataclasses.replace(STUCK, cpu=n, program="") for n in range(2, 9))
    (finding,) = judged(host_cpu, Case("", but(BIG, lockups=(STUCK, *many))))
    assert finding.saw == (
        "CPU 1 for 22.0 s in python, 2 min ago, CPU 2 for 22.0 s, 2 min ago, "
        "CPU 3 for 22.0 s, 2 min ago, CPU 4 for 22.0 s, 2 min ago and 4 more"
    )


def test_measured_takes_the_poorest_node() -> None:
    two = topology(4, nodes=(Node("n1", (0, 1)), Node("n2", (2, 3))))
    measured = host_cpu.measured(world("host.cpu", {"n1": BIG, "n2": but(BIG, usable=32)}, two))
    assert measured.values["cpus"] == 32
    assert measured.text == "32 of 64 CPUs · 16 CPUs per rank · load 1.5"
    assert host_cpu.measured(world("host.cpu", {})).text == ""


def test_observe_reads_this_machine() -> None:
    seen = host_cpu.observe(Host(), context())
    assert seen.usable == len(os.sched_getaffinity(0))
    assert seen.online >= seen.usable
    round_trips(seen)


def tree(root: Path, **files: str) -> Host:
    """A root with these files; `_` of a name stands for `/`, `__` for `_`."""
    for name, text in files.items():
        path = root / name.replace("__", "\0").replace("_", "/").replace("\0", "_")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return Host(str(root), {})


MACHINE = {
    "proc_self_status": "Name:\tpython\nCpus_allowed_list:\t0-3,64-127\nMems_allowed_list:\t0-1",
    "sys_devices_system_cpu_online": "0-63",
    "sys_devices_system_cpu_present": "0-127",
    "sys_devices_system_node_node0_cpulist": "0-31",
    "sys_devices_system_node_node1_cpulist": "32-63",
    "sys_devices_system_node_node2_cpulist": "",
    "proc_loadavg": "3.25 2.00 1.00 4/900 1234",
    "proc_self_cgroup": "0::/job/step",
    "proc_uptime": "100.00 1",
    "proc_cpuinfo": "flags\t: fpu hypervisor",
    "dev_kmsg": "0,1,10000000,-;watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python:42]\n",
    "sys_devices_system_clocksource_clocksource0_current__clocksource": "hpet",
    "sys_devices_system_clocksource_clocksource0_available__clocksource": "hpet acpi_pm ",
}


def test_observe_finds_cpuset_and_the_smallest_quota(tmp_path: Path) -> None:
    host = tree(tmp_path, **MACHINE)
    group = tmp_path / "sys/fs/cgroup/job"
    (group / "step").mkdir(parents=True)
    (group / "cpu.max").write_text("250000 100000\n")
    (group / "step/cpu.max").write_text("max 100000\n")
    (group / "cpuset.cpus.effective").write_text("0-3\n")
    for name in ("dev/nvidia0", "dev/nvidia1", "dev/nvidiactl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for address, node in (("0000:0A:00.0", "1"), ("0000:b1:00.0", "-1")):
        (tmp_path / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
        device = tmp_path / "sys/bus/pci/devices" / address.lower()
        device.mkdir(parents=True)
        (device / "numa_node").write_text(node + "\n")

    seen = host_cpu.observe(host, context())

    assert (seen.allowed, seen.usable, seen.online, seen.offline) == ("0-3", 4, 64, 64)
    assert seen.held_by == "/sys/fs/cgroup/job/cpuset.cpus.effective"
    assert (seen.quota, seen.quota_at) == (2.5, "/sys/fs/cgroup/job")
    assert (seen.numa_all, seen.numa_allowed) == ((0, 1), (0,))
    assert (seen.gpus, seen.gpu_nodes) == (2, (1,))
    assert seen.load == 3.25
    assert (seen.clock, seen.clocks) == ("hpet", ("hpet", "acpi_pm"))
    assert seen.virtual is True
    assert seen.lockups == (SoftLockup(3, 23, "python", 90.0),)
    round_trips(seen)


def test_observe_tells_a_mask_from_a_cpuset_and_reads_v1(tmp_path: Path) -> None:
    host = tree(tmp_path, **MACHINE | {"proc_self_cgroup": "3:cpuset:/\n1:cpu,cpuacct:/box"})
    for folder, name, text in (
        ("cpuset", "cpuset.cpus", "0-63"),
        ("cpu/box", "cpu.cfs_quota_us", "50000"),
        ("cpu/box", "cpu.cfs_period_us", "100000"),
        ("cpu", "cpu.cfs_quota_us", "-1"),
        ("cpu", "cpu.cfs_period_us", "100000"),
    ):
        file = tmp_path / "sys/fs/cgroup" / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    seen = host_cpu.observe(host, context())
    assert seen.held_by == "affinity mask"
    assert (seen.quota, seen.quota_at) == (0.5, "/sys/fs/cgroup/cpu/box")


def test_observe_bounds_hostile_values(tmp_path: Path) -> None:
    status = "Cpus_allowed_list:\t0-1,5-,x,7-99999999999999,-3,²,9-8"
    tree(tmp_path, proc_self_status=status, sys_devices_system_cpu_online="0-99999999999")
    (tmp_path / "proc/loadavg").write_bytes(b"\xff\xfe")
    names = ("OMP_NUM_THREADS", "OMP_PLACES", "SLURM_CPUS_PER_TASK")
    host = Host(str(tmp_path), dict.fromkeys(names, "{" * (1 << 20)))
    seen = host_cpu.observe(host, context())
    assert seen.online <= 8193
    assert seen.load is None
    round_trips(seen)
    judged(host_cpu, Case("hostile", seen))


def test_cannot_tell_without_proc(tmp_path: Path) -> None:
    with pytest.raises(CannotObserve):
        host_cpu.observe(Host(str(tmp_path), {}), context())
