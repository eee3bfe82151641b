"""Are there enough CPUs for the ranks, and are the ranks not pinned to a few of them?

Looks at     the CPUs that this process may use (mask and cpuset), the CPU quota of the cgroup and
             its ancestors, CPUs online, NUMA nodes and those of NVIDIA GPUs, OMP_NUM_THREADS,
             OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY, SLURM_CPUS_PER_TASK, the load average,
             the kernel's clock source in /sys/devices/system/clocksource; what /dev/kmsg, where
             readable, has of soft lockups; whether this is a virtual machine
Fails if     a rank has fewer CPUs than `cpus_per_rank` expects
Warns if     a mask, a cpuset or a quota leaves less than one CPU per rank (two where every rank has
             a GPU) on a machine that has more; a GPU machine has too few CPUs itself; OpenMP binds
             every rank to the same first CPU; ranks x OMP_NUM_THREADS is more than twice the CPUs;
             ranks x `loader_workers` is more than the CPUs; all GPUs are used, but the CPUs are on
             another NUMA node than some of them; the kernel's clock source is hpet, acpi_pm, pit,
             jiffies or refined-jiffies, of which each reading is a system call, most of them slow;
             the kernel logged in the last 10 minutes that a CPU was stuck (soft lockup; in a
             virtual machine twice, since one that was paused has one)
Undecided    it can't be read which CPUs are allowed
Not covered  a binding that the launcher sets for each rank after this check; CPUs kept busy by
             other jobs: the load average is shown, not judged
Seen as      "This DataLoader will create 8 worker processes in total. Our suggested max number of
             worker in current system is 1", a DataLoader that freezes, GPU utilisation in bursts,
             one CPU at 100 % and the others idle, nr_throttled of cpu.stat that grows,
             read_hpet or acpi_pm_read at the top of `perf top`, "watchdog: BUG: soft lockup - CPU#1
             stuck for 22s!"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.check import Check, Context, Scope, Stage
from preflight.domains import kernel_log, pci
from preflight.domains.kernel_log import SoftLockup, soft_lockups
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host, cpulist
from preflight.humanize import duration, parties, plural
from preflight.model import (
    Blame,
    Command,
    Confidence,
    FindingType,
    Found,
    Measured,
    Status,
    Subject,
    World,
)
from preflight.sanitize import escaped

CHECK = Check(
    scope=Scope.NODE, stage=Stage.MACHINE, budget=3.0, blame=Blame.JOB, explains=("world.loader",)
)

# one for the process that drives the GPU, one for its loader or NCCL's proxy thread
CPUS_PER_GPU_RANK = 2
# threads per CPU from which on OpenMP's barriers wait for threads that are not running
OMP_CROWD = 2
# values of OMP_PROC_BIND that bind, and places that hold more than one core: binding to the first
# of those is harmless (manual of libgomp, Environment Variables)
BINDS = ("true", "close", "spread", "master", "primary")
WIDE_PLACES = ("sockets", "numa_domains", "ll_caches")
# launchers that give every rank a mask of its own, within which OpenMP then binds
BINDING_LAUNCHERS = ("slurm", "mpi")
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")
VALUE_MAX = 80  # characters of an environment variable that are kept
# drivers/clocksource/acpi_pm.c, arch/x86/kernel/hpet.c, i8253.c, kernel/time/jiffies.c: no process
# can read them without a system call, and but for jiffies each reading waits for a device
SLOW_CLOCKS = ("hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies")
CLOCKS = "/sys/devices/system/clocksource/clocksource0"
LOG_SECONDS = 0.3
# seconds for which a soft lockup counts: nothing says that it is over
LOCKUP_RECENT = 600.0
LISTED = 4

FINDINGS = {
    "pinned": FindingType(
        headline="{seen} on {at}",
        who="job author",
        cause="srun without --cpus-per-task, or a launcher or taskset that binds all ranks",
        means="all ranks and their DataLoader workers share a few cores: the loader crawls or "
        "freezes while the other CPUs idle",
        now="export SRUN_CPUS_PER_TASK={wanted}   before srun, in the job script",
        text="give --cpus-per-task to srun too: since Slurm 22.05 it does not inherit it from "
        "sbatch; MPI: --bind-to none",
        commands=(Command("taskset -cp $$", "the job script"),),
        status=(Status.WARN, Status.FAIL),
    ),
    "quota-low": FindingType(
        headline="{seen}, on {at}",
        who="job author",
        cause="a CPU limit of the container meant for one process",
        means="the kernel throttles all ranks (nr_throttled in cpu.stat grows): steps take "
        "several times as long, and differ between ranks",
        text="raise the limit: pod: resources.limits.cpu of at least {wanted}, or no CPU limit; "
        "docker: --cpus={wanted}",
        commands=(Command("cat {folder}/cpu.stat", "the node"),),
        status=(Status.WARN, Status.FAIL),
    ),
    "cpus-few": FindingType(
        headline="{seen} on {at}: too few",
        who="job author",
        cause="more ranks than the machine has CPUs",
        means="the ranks share CPUs, and the GPUs wait for their kernels to be launched",
        text="use a machine with at least {wanted} CPUs, or start fewer ranks on this one",
        status=(Status.WARN, Status.FAIL),
        blame=(Blame.JOB, Blame.NODE),
    ),
    "omp-bound": FindingType(
        headline="OpenMP binds all ranks on {at} to the same CPUs: {seen}",
        who="job author",
        cause="OpenMP variables tuned for one process, used by several ranks",
        means="`import torch` binds the main thread of every rank to the same CPU, and its "
        "DataLoader workers inherit that: one CPU at 100 %, the others idle",
        now="unset OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY",
        text="bind ranks with the launcher instead: torchrun --numa-binding=node, srun --cpu-bind",
        status=Status.WARN,
    ),
    "omp-many": FindingType(
        headline="the ranks on {at} start more OpenMP threads than there are CPUs: {seen}",
        who="job author",
        cause="an OMP_NUM_THREADS chosen for one process: every rank starts that many threads",
        means="OpenMP threads compete for the CPUs and wait for each other",
        now="export OMP_NUM_THREADS={threads}",
        status=Status.WARN,
        explains=(),
    ),
    "loader-many": FindingType(
        headline="there are more DataLoader workers than CPUs on {at}: {seen}",
        who="job author",
        cause="a num_workers chosen for a single rank",
        means="'This DataLoader will create … worker processes in total. Our suggested max number "
        "of worker in current system is …'",
        text="set num_workers={workers!s} for each rank, or request more CPUs",
        status=Status.WARN,
    ),
    "numa-far": FindingType(
        headline="the job's CPUs on {at} are on another NUMA node than its GPUs: {seen}",
        who="job author",
        cause="a mask or cpuset on one NUMA node, while the job uses all GPUs",
        means="some ranks reach their GPU across sockets: they are slower, and all others wait "
        "for them",
        text="let the job use the CPUs of all NUMA nodes and bind each rank to the NUMA node of "
        "its GPU: torchrun --numa-binding=node, or srun --gpus-per-task=1",
        commands=(Command("nvidia-smi topo -m", "the node"),),
        status=Status.WARN,
        explains=(),
    ),
    "clock-source-slow": FindingType(
        headline="reading the clock is slow on {at}: {seen}",
        cause="a TSC that the kernel has marked unstable, mostly because of the BIOS, or "
        "clocksource= on the kernel's command line",
        means="'Marking TSC unstable' in the kernel's log, mostly; each reading of the clock is a "
        "system call, and takes microseconds with hpet and acpi_pm, in place of about 25 ns; "
        "torch, NCCL and Python read it all the time: launching kernels, profilers and data "
        "loading are slower on this node, without an error",
        text="look for 'Marking TSC unstable' in the kernel's log and update BIOS and firmware; "
        "boot with tsc=reliable only where the vendor says so; in a virtual machine choose the "
        "hypervisor's clock (kvm-clock, hyperv_clocksource_tsc_page, xen)",
        commands=(
            Command("dmesg -T | grep -iE 'tsc|clocksource'; cat /proc/cmdline", "the node"),
            Command("grep . {clocks}/*_clocksource", "the node"),
        ),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=(),
    ),
    "soft-lockup": FindingType(
        headline="the kernel on {at} was stuck on a CPU: {seen}",
        who="data-centre operator",
        cause="a driver or file system that loops in the kernel (GPU, NIC, Lustre), a failing CPU "
        "or memory, or a hypervisor that did not run this virtual machine",
        means="'watchdog: BUG: soft lockup - CPU#1 stuck for 22s!' in the kernel's log: nothing "
        "else ran on that CPU, neither a rank nor a driver; a rank hangs there, and timeouts "
        "of NCCL, Gloo and torchrun expire",
        text="read the stack below that line in the kernel's log: it names the driver; update or "
        "reload that, and reboot or exclude this node if it happens again",
        commands=(Command("dmesg -T | grep -A30 'soft lockup'", "the node, as root"),),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=(),
    ),
}


@dataclass(frozen=True, slots=True)
class Cpus:
    """What of this machine's CPUs this process may use.

    allowed        the list of them, offline ones left out; `usable` is how many
    held_by        what keeps it from the other CPUs: the file of a cpuset or `affinity mask`
    quota          CPUs' worth of time by the smallest quota, in the cgroup folder `quota_at`
    binding        the variables of BINDING that are set, bounded
    numa_all, numa_allowed   NUMA nodes that have CPUs, and those in which `allowed` lies
    gpus           device files of GPUs; gpu_nodes are the NUMA nodes of the NVIDIA GPUs
    clock          what the kernel reads the time from, empty where it does not say; `clocks` are
                   those that it could take
    lockups        CPUs that were stuck since boot, as far as the kernel's log can be read
    virtual        whether this is a virtual machine; None: nothing tells
    """

    allowed: str
    usable: int
    online: int
    offline: int
    held_by: str
    quota: float | None
    quota_at: str
    omp_threads: str | None
    binding: Mapping[str, str]
    slurm_cpus: str | None
    numa_all: tuple[int, ...]
    numa_allowed: tuple[int, ...]
    gpus: int
    gpu_nodes: tuple[int, ...]
    load: float | None
    clock: str = ""
    clocks: tuple[str, ...] = ()
    lockups: tuple[SoftLockup, ...] = ()
    virtual: bool | None = None

    @property
    def worth(self) -> float:
        """How many CPUs all ranks together can keep busy."""
        return float(self.usable) if self.quota is None else min(self.usable, self.quota)


def observe(host: Host, ctx: Context) -> Cpus:
    allowed = host.affinity()
    # where nothing says what is online (some sandboxes), nothing is held back either
    online = cpulist(_line(host, "/sys/devices/system/cpu/online")) or allowed
    usable = allowed & online or allowed
    numa = _numa(host)
    quota, quota_at = min(host.cpu_quotas(), default=(None, ""))
    nodes = (
        host.read_int(f"/sys/bus/pci/devices/{address.lower()}/numa_node")
        for address in host.listdir("/proc/driver/nvidia/gpus")
    )
    ctx.mark(kernel_log.KMSG)
    return Cpus(
        lockups=soft_lockups(host, LOG_SECONDS),
        virtual=pci.virtual_machine(host),
        allowed=_cpulist_text(usable),
        usable=len(usable),
        online=len(online),
        offline=len(cpulist(_line(host, "/sys/devices/system/cpu/present")) - online),
        held_by=_held_by(host, usable, online),
        quota=quota,
        quota_at=quota_at,
        omp_threads=_variable(host, "OMP_NUM_THREADS"),
        binding={n: v for n in BINDING if (v := _variable(host, n))},
        slurm_cpus=_variable(host, "SLURM_CPUS_PER_TASK"),
        numa_all=tuple(numa),
        numa_allowed=tuple(node for node, cpus in numa.items() if cpus & usable),
        gpus=len(host.gpu_files()),
        gpu_nodes=tuple(sorted(n for n in nodes if n is not None and n >= 0)),
        load=_load(host),
        clock=_line(host, f"{CLOCKS}/current_clocksource")[:VALUE_MAX],
        clocks=tuple(_line(host, f"{CLOCKS}/available_clocksource")[:VALUE_MAX].split()),
    )


def _line(host: Host, path: str) -> str:
    return (host.read_or_none(path) or "").strip()


def _variable(host: Host, name: str) -> str | None:
    value = host.environ.get(name)
    return None if value is None else value[:VALUE_MAX]


def _held_by(host: Host, usable: frozenset[int], online: frozenset[int]) -> str:
    if usable == online:
        return ""
    # v2, then v1 with and without an "effective" list
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        for path, text in host.cgroup_files("cpuset", name):
            cpus = cpulist(text)
            if cpus:  # the innermost one that has a list: all outer ones are wider
                return path if cpus & online == usable else "affinity mask"
    return "affinity mask or cpuset"


def _numa(host: Host) -> dict[int, frozenset[int]]:
    """NUMA node -> its CPUs, for nodes that have any."""
    folder = "/sys/devices/system/node"
    names = (n for n in host.listdir(folder) if n.startswith("node") and n[4:].isdecimal())
    found = {int(n[4:]): cpulist(_line(host, f"{folder}/{n}/cpulist")) for n in names}
    return {node: cpus for node, cpus in sorted(found.items()) if cpus}


def _load(host: Host) -> float | None:
    """Runnable and waiting threads of the whole machine, averaged over a minute."""
    try:
        return float(_line(host, "/proc/loadavg").partition(" ")[0])
    except ValueError:
        return None


def _cpulist_text(cpus: frozenset[int]) -> str:
    """The inverse of cpulist(), cut after a few ranges."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    parts = [str(a) if a == b else f"{a}-{b}" for a, b in ranges]
    return ",".join(parts[:8]) + (",…" if len(parts) > 8 else "")


def judge(world: World[Cpus], expect: Expect) -> Iterator[Found]:
    for here, cpus in world.each():
        ranks = max(1, len(here.ranks))
        held = list(_judge_number(here, cpus, ranks, expect))
        yield from held
        if not held:
            yield from _judge_numa(here, cpus, ranks)
        yield from _judge_openmp(here, cpus, ranks, world.topology.launcher)
        workers = int(expect.number("loader_workers") or 0)
        if ranks * workers > cpus.worth:
            yield Found(
                "loader-many",
                (here,),
                saw=f"{plural(ranks, 'rank')} with {plural(workers, 'DataLoader worker')} each "
                f"on {cpus.worth:g} CPUs",
                expected=f"no more workers than CPUs{expect.aside('loader_workers')}",
                fields={"workers": str(max(1, int(cpus.worth / ranks) - 1))},
            )
        if cpus.clock in SLOW_CLOCKS:
            others = [clock for clock in cpus.clocks if clock != cpus.clock]
            yield Found(
                "clock-source-slow",
                (here,),
                saw=f"the kernel's clock source is {cpus.clock}"
                + (f", also available: {', '.join(others)}" if others else ", none other is there"),
                expected="one that a process reads without a system call, such as tsc",
                fields={"clocks": CLOCKS},
            )
        yield from _judge_lockups(here, cpus)


def _judge_lockups(here: Subject, cpus: Cpus) -> Iterator[Found]:
    """A virtual machine that was paused or moved has one on a CPU when it goes on; that it is over
    nothing says."""
    stuck = [
        one
        for one in cpus.lockups
        if one.age < LOCKUP_RECENT
        and (not cpus.virtual or (one.before is not None and one.before < LOCKUP_RECENT))
    ]
    said = [
        f"CPU {one.cpu} for {duration(one.stuck)}"
        + f" in {escaped(one.program)}" * bool(one.program)
        + f", {duration(one.age)} ago"
        for one in stuck
    ]
    if said:
        yield Found(
            "soft-lockup",
            (here,),
            saw=parties(said, LISTED),
            expected="no 'soft lockup' in the kernel's log of the last 10 minutes",
            confidence=Confidence.LIKELY,
        )


def _judge_number(here: Subject, cpus: Cpus, ranks: int, expect: Expect) -> Iterator[Found]:
    """Too few CPUs, named by what takes them away.

    Trying a job of four ranks on a machine of two CPUs is no fault: without an expectation and
    without a GPU for every rank, only a limit on a machine that has enough is one, and a mask that
    puts all ranks on a single CPU of several.
    """
    floor = expect.number("cpus_per_rank")
    real = cpus.gpus >= ranks
    each = floor if floor is not None else float(CPUS_PER_GPU_RANK if real else 1)
    wanted = each * ranks
    stacked = ranks > 1 and cpus.usable == 1
    matters = floor is not None or real or cpus.online >= (2 if stacked else wanted)
    if not matters or cpus.worth >= wanted:
        return
    evidence = [f"{cpus.online} CPUs online, {cpus.offline} offline"]
    if cpus.load is not None:
        evidence.append(f"load average {cpus.load:g}")
    if cpus.slurm_cpus is not None:
        evidence.append(f"SLURM_CPUS_PER_TASK={cpus.slurm_cpus!r}")
    causes = []
    if cpus.quota is not None and cpus.quota < min(wanted, cpus.usable):
        saw = f"the quota of {cpus.quota_at} is {cpus.quota:g} of {cpus.usable} CPUs"
        causes.append(("quota-low", saw))
    if cpus.usable < min(wanted, cpus.online):
        saw = f"{cpus.held_by} leaves {cpus.usable} of {cpus.online} CPUs ({cpus.allowed})"
        causes.append(("pinned", saw))
    if not causes:
        causes.append(("cpus-few", f"{plural(cpus.online, 'CPU')} online"))
    for code, saw in causes:
        yield Found(
            code,
            (here,),
            saw=f"{saw}, for {plural(ranks, 'rank')}",
            expected=f"at least {each:g} for each rank{expect.aside('cpus_per_rank')}",
            blame=Blame.NODE if floor is not None and code == "cpus-few" else None,
            fields={"wanted": f"{wanted:g}", "folder": cpus.quota_at},
            evidence=tuple(evidence),
            status=None if floor is None else Status.FAIL,
        )


def _judge_numa(here: Subject, cpus: Cpus, ranks: int) -> Iterator[Found]:
    # with fewer ranks than GPUs the job may well use only those near its CPUs
    far = [node for node in cpus.gpu_nodes if node not in cpus.numa_allowed]
    if far and cpus.numa_allowed and ranks >= len(cpus.gpu_nodes):
        yield Found(
            "numa-far",
            (here,),
            saw=f"CPUs {cpus.allowed} are on NUMA node {_nodes(cpus.numa_allowed)} only, "
            f"{len(far)} of {len(cpus.gpu_nodes)} GPUs on node {_nodes(far)}",
            expected="CPUs on every NUMA node that has a GPU of the job",
            confidence=Confidence.LIKELY,
        )


def _nodes(nodes: tuple[int, ...] | list[int]) -> str:
    return ", ".join(str(node) for node in sorted(set(nodes))[:8])


def _judge_openmp(here: Subject, cpus: Cpus, ranks: int, launcher: str) -> Iterator[Found]:
    bound = _binds(cpus.binding) and launcher not in BINDING_LAUNCHERS
    if bound and ranks > 1 and cpus.usable > 1:
        values = " ".join(f"{name}={value!r}" for name, value in cpus.binding.items())
        yield Found(
            "omp-bound",
            (here,),
            saw=f"{values} for {ranks} ranks that share CPUs {cpus.allowed}",
            expected="none of them set, or a separate mask for every rank",
            confidence=Confidence.LIKELY,
        )
    # a list such as 4,2 sets nested levels: the first counts; what is not a number, env.* names
    first = (cpus.omp_threads or "").partition(",")[0].strip()
    threads = int(first) if first.isdecimal() and len(first) < 10 else 1
    if threads > 1 and ranks * threads > OMP_CROWD * cpus.worth:
        yield Found(
            "omp-many",
            (here,),
            saw=f"OMP_NUM_THREADS={cpus.omp_threads!r} for {plural(ranks, 'rank')} "
            f"on {cpus.worth:g} {'CPU' if cpus.worth == 1 else 'CPUs'}",
            expected=f"no more than {OMP_CROWD} threads per CPU",
            fields={"threads": str(max(1, int(cpus.worth / ranks)))},
        )


def _binds(binding: Mapping[str, str]) -> bool:
    """Whether libgomp binds the first thread of a process to one CPU: OMP_PROC_BIND decides;
    where it is unset, a list of places binds too."""
    policy = binding.get("OMP_PROC_BIND", "").strip().lower()
    places = binding.get("OMP_PLACES", "").strip().lower()
    if places.startswith(WIDE_PLACES):
        return False
    if policy:
        return policy.startswith(BINDS)
    return bool(places or binding.get("GOMP_CPU_AFFINITY", "").strip())


def measured(world: World[Cpus]) -> Measured:
    each = [(cpus.worth / max(1, len(here.ranks)), cpus) for here, cpus in world.each()]
    if not each:
        return Measured()
    share, least = min(each, key=lambda e: e[0])
    quota = "" if least.quota is None else f" · quota {least.quota:g}"
    load = "" if least.load is None else f" · load {least.load:g}"
    part = "1 CPU" if share == 1 else f"{share:.3g} CPUs"
    return Measured(
        f"{least.usable} of {least.online} CPUs{quota} · {part} per rank{load}",
        {
            "cpus": least.usable,
            "cpus_online": least.online,
            "cpu_quota": least.quota,
            "cpus_per_rank": share,
            "load": least.load,
        },
    )
