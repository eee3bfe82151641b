"""Are the limits high enough: locked memory, open files, threads, CPU time, /dev/shm?

Looks at     /proc/self/limits, size and free space of /dev/shm, memory and pids of the cgroup and
             its ancestors, /proc/meminfo, vm.overcommit_memory, RDMA devices in
             /sys/class/infiniband and whether /dev/infiniband/uverbs* can be opened, CAP_IPC_LOCK,
             signs of a container; what /dev/kmsg, where readable, has of full neighbour tables
             (ARP), net.ipv4.neigh.default.gc_thresh3 and that of IPv6; the memory controllers'
             counts of uncorrectable errors in /sys/devices/system/edac
Fails if     locked memory is limited below 1 GiB while RDMA devices can be used; /dev/shm is
             missing, can't be written or has less than 10 MiB free per local rank; fewer than 64
             threads are left per rank; a process may open fewer than 128 files, or fewer than the
             store of all ranks needs; less than 512 MiB of memory is left per rank, or may be
             committed where the kernel does not overcommit; a process may use less than an hour of
             CPU time, less than 64 GiB of address space beside GPUs (1 GiB without), less than
             1 GiB of data, or write files of less than 10 MiB; a limit on processes lets not even
             this check start; ranks can't open their node's InfiniBand while others can open theirs
Warns if     /dev/shm is smaller than 1 GiB; a process may open fewer than 256 files plus 16 per
             rank of the job, for the connections of NCCL and Gloo, and as many per rank of each
             further communicator of which accelerate's PARALLELISM_CONFIG_* and MEGATRON_LM_* tell
             (more with NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD, where NCCL goes over TCP);
             several nodes with GPUs have active InfiniBand (or EFA), but a container has not got
             its devices, or their mode keeps this user from opening them; a process may use less
             than a week of CPU time, less than 1 TiB of address space and 16 GiB of data beside
             GPUs (4 GiB without), or write files of less than 100 GiB; on several nodes, TCP may
             buffer less than 64 KiB of a connection (net.ipv4.tcp_rmem, tcp_wmem); the kernel had
             no room for another neighbour in its ARP table, or that of IPv6, in the last hour; the
             node's memory has had uncorrectable ECC errors since boot
Undecided    /proc/self/limits can't be read
Not covered  limits that the launcher changes after this check; communicators that only the script
             knows of; disk quotas (host.storage); corrected ECC errors; memory errors where the
             kernel has no EDAC driver for the memory controller (most virtual machines)
Seen as      "ibv_reg_mr failed", "ibv_create_qp failed: Cannot allocate memory", "Bus error",
             "failed to extend /dev/shm/nccl-", "unable to open shared memory object",
             "pthread_create failed: Resource temporarily unavailable", "Too many open files",
             "fork: retry: Resource temporarily unavailable", "can't start new thread",
             "NET/IB : Unable to open device", "NET/IB : No device found" inside a container,
             exit code 137 of one rank, "CPU time limit exceeded", "File too large", "CUDA error:
             out of memory" at the first call of CUDA, "Cannot allocate memory" with memory free,
             exit code 135 (SIGBUS), "Sending SIGBUS to python due to hardware memory corruption"
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from preflight.check import Check, Context, Scope, Stage
from preflight.domains import kernel_log
from preflight.domains.kernel_log import MemoryFailure, memory_failures
from preflight.domains.net.rdma import disabled_by, rdma_ports
from preflight.domains.system import container, edac
from preflight.domains.system.edac import UncorrectedErrors
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import UNLIMITED, Host, number
from preflight.humanize import GIB, MIB, count, duration, parties, plural, size
from preflight.model import (
    NO_PROCESS,
    Blame,
    CannotObserve,
    Cause,
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
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=3.0,
    drains=True,
    blame=Blame.JOB,
    explains=("world.nccl",),
)

# what the kernel says where bytes, inodes or a quota are used up
FULL = ("No space left on device", "Disk quota exceeded")
# one channel buffer of NCCL's shared-memory transport is 9.2 MiB (NVIDIA/nccl#290)
SHM_PER_RANK = 10 * MIB
# what `docker run` gives is 64 MiB; a DataLoader with a few workers fills it
SHM_COMFORT = 1 * GIB
# what a connection without window scaling had; the kernel's own values are 6 and 4 MiB
BUFFER_LEAST = 64 << 10
# registering even the smallest buffers of one HCA takes more than the classic 64 KiB or 8 MiB
MEMLOCK_RDMA = 1 * GIB
# interpreter, OpenMP, autograd, NCCL's or Gloo's own threads
THREADS_PER_RANK = 64
# what torch and a DataLoader have open before the first connection, and what makes it comfortable
FILES_AT_LEAST, FILES_PER_RANK = 128, 256
# NCCL over TCP has two connections a channel and neighbour, and more of the bootstrap and proxy;
# the store of rank 0 has at least one of every rank
FILES_PER_PEER, FILES_OF_STORE = 16, 64
# with these NCCL opens more data connections for each of its own over TCP, and one beside them
# (net_socket.cc: MAX_THREADS, MAX_SOCKETS)
THREADS, SOCKETS = "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"
THREADS_MOST, SOCKETS_MOST = 16, 64
# what `accelerate launch` tells its ranks of the device mesh: each of its dimensions of more than
# one rank is a communicator of its own beside that of all ranks (accelerate's ParallelismConfig and
# MegatronLMPlugin)
MESH = (
    *(f"PARALLELISM_CONFIG_{name}_SIZE" for name in ("DP_REPLICATE", "DP_SHARD", "TP", "CP", "EP")),
    *("MEGATRON_LM_TP_DEGREE", "MEGATRON_LM_PP_DEGREE"),
)
# fs.nr_open as the kernel has it: nobody may have more, nor does NCCL open all that many
FILES_MOST = 1 << 20
RANKS_MOST = 1 << 20
MEMORY_PER_RANK = 512 * MIB
# a rank's threads use several seconds of CPU time in one
CPU_AT_LEAST, CPU_PLENTY = 3600, 7 * 86400
# CUDA maps all of the memory of the node and of its GPUs into one address space, before it has
# allocated anything; without it torch with its threads takes some hundred MiB
ADDRESSES_AT_LEAST, ADDRESSES_PLENTY = GIB, 4 * GIB
CUDA_AT_LEAST, CUDA_PLENTY = 64 * GIB, 1024 * GIB
# private memory that can be written, since Linux 4.7 also what mmap gives (getrlimit(2)); CUDA's
# reservations are not among it
DATA_AT_LEAST, DATA_PLENTY, DATA_BESIDE_CUDA = GIB, 4 * GIB, 16 * GIB
# what is written at once: a checkpoint; NCCL's segment in /dev/shm is a file, too
FILE_AT_LEAST, FILE_PLENTY = SHM_PER_RANK, 100 * GIB
# vm.overcommit_memory: what is not backed by memory and swap is refused (proc_sys_vm(5))
NEVER_OVERCOMMIT = 2

# net/core/neighbour.c, and before Linux 3.7 the two families for themselves; each message counts,
# however many are suppressed
TABLE_FULL = re.compile(
    r"(?:(arp_cache|ndisc_cache|ipv4|ipv6): )?[Nn]eighbou?r table overflow", re.ASCII
)
LOG_SECONDS, LOG_RECENT = 0.5, 3600.0
# its gc_thresh3 has to have room for all nodes and containers of the subnet
NEIGHBOURS = 16384
LISTED = 3

# its bit in CapEff (capabilities(7)): whoever has it may lock memory beyond the limit, as pods for
# RDMA do; the kernel asks for it in the first user namespace only
IPC_LOCK = 14
FIRST_USER_NAMESPACE = ["0", "0", "4294967295"]

PROPAGATED = FindingType(
    who="job author",
    cause="a limit of the login node or of a profile, which sbatch and srun carry along",
    means="",
    text="raise it where jobs are started: /etc/security/limits.conf, the unit of the daemon that "
    "starts them, PropagateResourceLimits=NONE in slurm.conf",
    commands=(Command("ulimit -Ha; ulimit -Sa", "the job script"),),
    status=(Status.FAIL, Status.WARN),
    explains=("world.*",),
)

FINDINGS = {
    "memlock-low": FindingType(
        headline="{seen} on {at}: too little for RDMA",
        cause="a small LimitMEMLOCK in the service that starts jobs",
        means="NCCL over InfiniBand or RoCE stops with 'Cannot allocate memory' in ibv_reg_mr",
        text="set LimitMEMLOCK=infinity in slurmd's unit and "
        "PropagateResourceLimitsExcept=MEMLOCK; in the job script, where the hard limit allows it: "
        "ulimit -l unlimited",
        commands=(Command("systemctl edit slurmd", "the node", "slurmd for a moment, no job"),),
        blame=Blame.NODE,
    ),
    "memlock-container": FindingType(
        headline="{seen} in the container on {at}: too little for RDMA",
        who="job author",
        cause="the container runtime's default; newer runtimes no longer inherit the host's limit",
        means="NCCL over InfiniBand or RoCE stops with 'Cannot allocate memory' in ibv_reg_mr",
        text="raise the limit: docker, podman: --ulimit memlock=-1; pod: capability IPC_LOCK and "
        "user root, or LimitMEMLOCK=infinity in the unit of containerd",
    ),
    "rdma-not-exposed": FindingType(
        headline="the container on {at} does not see its RDMA devices: {seen}",
        who="job author",
        cause="a container that was started without the RDMA devices of its host",
        means="'NET/IB : No device found' in NCCL's log, and training over TCP: many times "
        "slower, without an error; where other nodes use theirs, ncclCommInitRank hangs",
        text="expose them: docker, podman: --device=/dev/infiniband --ulimit memlock=-1; pod: the "
        "resource of the RDMA device plugin (rdma/…) and IPC_LOCK; on the host itself: modprobe "
        "ib_uverbs",
        commands=(Command("ls -l /dev/infiniband /sys/class/infiniband", "the container"),),
        status=(Status.WARN, Status.FAIL),
        explains=("world.nccl", "world.bandwidth"),
        was=("rdma-not-given",),
    ),
    "rdma-permission-denied": FindingType(
        headline="{at} has no permission to open its RDMA devices: {seen}",
        who="cluster administrator",
        cause="/dev/infiniband/uverbs* with another mode than 0666, by a udev rule or since a "
        "driver was reloaded, and a user who is not in their group",
        means="'NET/IB : No device found' in NCCL's log, and training over TCP: many times "
        "slower, without an error; where other nodes use theirs, ncclCommInitRank hangs",
        text="give them the mode 0666, as the udev rules of rdma-core do; or join the group that "
        "owns them, then log in again; container: --group-add with its number",
        commands=(
            Command("id; stat -c '%n %a %g %G' /dev/infiniband/uverbs*", "the node"),
            Command("udevadm trigger --subsystem-match=infiniband_verbs", "the host, as root"),
        ),
        status=(Status.WARN, Status.FAIL),
        explains=("world.nccl", "world.bandwidth"),
    ),
    "shm-unusable": FindingType(
        headline="{seen} on {at}",
        cause="/dev/shm not mounted, or not with mode 1777",
        means="NCCL's shared-memory transport and every DataLoader worker fail at once",
        text="mount it: mount -t tmpfs -o mode=1777 tmpfs /dev/shm; in a container without one: "
        "--ipc=private",
        blame=Blame.NODE,
        explains=("world.nccl", "world.loader"),
    ),
    "shm-full": FindingType(
        headline="{seen} on {at}: it is full",
        who="job author",
        cause="files that ended jobs left in /dev/shm, or a container's default of 64 MiB",
        means="'failed to extend /dev/shm/nccl-…' or 'Bus error' at the first batch",
        text="start the container with --shm-size=8g (docker, podman) or an emptyDir with medium "
        "Memory at /dev/shm (pod); or remove what ended jobs left there",
        commands=(Command("ls -lh /dev/shm", "the node"),),
        explains=("world.nccl", "world.loader"),
    ),
    "shm-small": FindingType(
        headline="{seen} on {at}: too small",
        who="job author",
        cause="a container's default of 64 MiB",
        means="DataLoader workers die with 'Bus error' (SIGBUS) once batches are large",
        text="start the container with --shm-size=8g (docker, podman) or an emptyDir with medium "
        "Memory at /dev/shm (pod)",
        status=(Status.WARN, Status.FAIL),
        explains=("world.loader",),
    ),
    "nofile-low": FindingType(
        headline="{seen} on {at}: too few",
        who="job author",
        cause="the usual default of 1024 files, or less",
        means="'Too many open files' at connect time, or 'received 0 items of ancdata'",
        now="ulimit -n {wanted}   in the job script; if refused, raise the hard limit first",
        text="raise the limit: LimitNOFILE=1048576 in the unit that starts jobs; docker, podman: "
        "--ulimit nofile=1048576",
        status=(Status.FAIL, Status.WARN),
        explains=("rdzv.*", "world.*"),
    ),
    "tcp-buffers-low": FindingType(
        headline="TCP connections of {at} crawl: {seen}",
        who="cluster administrator",
        cause="values of net.ipv4.tcp_rmem or tcp_wmem that were meant as kilobytes or pages, or "
        "tuned for a machine with little memory",
        means="no error: each direction carries one such buffer per round trip at most; "
        "all-reduces over TCP and large objects in the store crawl",
        now="sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456' net.ipv4.tcp_wmem='4096 16384 "
        "4194304'   as root",
        text="remove the lines from /etc/sysctl.d, or set the kernel's own values: 4096 131072 "
        "6291456 and 4096 16384 4194304 bytes",
        commands=(Command("sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem", "the node"),),
        status=Status.WARN,
        explains=("net.speed", "world.bandwidth", "world.gloo:slow", "world.nccl:slow"),
    ),
    "arp-table-full": FindingType(
        headline="{at} has no room for more neighbours: {seen}",
        who="cluster administrator",
        cause="a subnet with more nodes and containers than the kernel's default of 1024 "
        "neighbours (ARP for IPv4, NDP for IPv6)",
        means="'neighbor table overflow' in the kernel's log; new connections to nodes of the "
        "same subnet fail with 'No buffer space available' or 'Invalid argument', or hang until a "
        "timeout: some ranks reach the others, some do not",
        now="sysctl -w net.{family}.neigh.default.gc_thresh3={third} "
        "net.{family}.neigh.default.gc_thresh2={second} "
        "net.{family}.neigh.default.gc_thresh1={first}   as root",
        text="set gc_thresh1, gc_thresh2 and gc_thresh3 of net.ipv4.neigh.default and "
        "net.ipv6.neigh.default in /etc/sysctl.d, on every node, to more than the neighbours that "
        "it can have, for example to 4096, 8192 and 16384",
        commands=(
            Command("ip neigh | wc -l; sysctl net.{family}.neigh.default", "the node"),
            Command("dmesg -T | grep 'table overflow'", "the node, as root"),
        ),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=(),
    ),
    "memory-ecc-uncorrected": FindingType(
        headline="{at} has had uncorrectable ECC errors in its memory: {seen}",
        who="data-centre operator",
        cause="a memory module (DIMM) that is failing or badly seated, or a memory channel of the "
        "CPU",
        means="'EDAC MC0: 1 UE' or 'Sending SIGBUS to python … due to hardware memory corruption' "
        "in the kernel's log; a rank dies of SIGBUS (exit code 135) or the whole node reboots, and "
        "the other ranks wait for it",
        text="replace the module that is named; a reboot sets the count to 0 and repairs nothing. "
        "Where the kernel has taken that memory out of use (HardwareCorrupted in /proc/meminfo), "
        "the job may start",
        commands=(
            Command("grep . {edac}/mc*/ue_count {edac}/mc*/*/dimm_ue_count", "the node"),
            Command("dmesg -T | grep -iE 'EDAC|memory failure'", "the node, as root"),
        ),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=(),
    ),
    "threads-low": FindingType(
        headline="{seen} on {at}: too few",
        cause="a small pids.max of the cgroup or `ulimit -u`",
        means="'pthread_create failed: Resource temporarily unavailable' in OpenBLAS or NCCL",
        now="export OMP_NUM_THREADS=1",
        text="raise {limit!s}; docker, podman: --pids-limit=-1; pod: podPidsLimit of the kubelet",
        explains=("host.software", "rdzv.*", "world.*", "*:no-process"),
    ),
    "fork-refused": FindingType(
        headline="no more processes can be started on {at}: {seen}",
        cause="a small pids.max of the cgroup or `ulimit -u`, or processes that use it up",
        means="fork() fails with 'Resource temporarily unavailable': no rank can be started",
        text="raise that limit (docker, podman: --pids-limit=-1; pod: podPidsLimit of the "
        "kubelet; service: TasksMax), or end the processes that nobody needs",
        commands=(Command("ps -eLo user,pid,nlwp,args --sort=-nlwp", "the node"),),
        blame=Blame.UNKNOWN,
        explains=("host.software", "rdzv.*", "world.*", "*:no-process"),
    ),
    "memory-low": FindingType(
        headline="{at} has too little memory: {seen}",
        who="job author",
        cause="a memory limit meant for one process, or other processes that use the rest",
        means="the kernel kills a rank (exit code 137) and the others wait for it",
        text="request more memory: sbatch --mem, resources.limits.memory, docker --memory; where "
        "vm.overcommit_memory=2 is the limit: raise vm.overcommit_ratio on the node",
        commands=(Command("ps -eo rss,user,pid,args --sort=-rss | head", "the node"),),
        explains=("host.software", "rdzv.*", "world.*"),
    ),
    "cpu-time-low": replace(
        PROPAGATED,
        headline="{seen} on {at}: then it is killed",
        means="the kernel ends each rank when its threads together have computed for so long: "
        "'CPU time limit exceeded', SIGXCPU or SIGKILL, and the others wait for it",
        now="ulimit -t unlimited   in the job script; if refused: sbatch --propagate=NONE",
    ),
    "address-space-low": replace(
        PROPAGATED,
        headline="{seen} on {at}: too little",
        cause="`ulimit -v` in a profile, or h_vmem of Grid Engine, which limits virtual memory "
        "in place of memory",
        means="CUDA does not start ('out of memory', 'initialization error'), mmap and threads "
        "fail, while most of the memory is free",
        now="ulimit -v unlimited   in the job script; if refused: sbatch --propagate=NONE, or "
        "for Grid Engine a larger h_vmem",
    ),
    "data-size-low": replace(
        PROPAGATED,
        headline="{seen} on {at}: too little",
        cause="`ulimit -d` in a profile, or h_data of Grid Engine",
        means="malloc and mmap fail at this size ('Cannot allocate memory', std::bad_alloc, "
        "'can't start new thread'), while most of the memory is free",
        now="ulimit -d unlimited   in the job script; if refused: sbatch --propagate=NONE",
    ),
    "file-size-low": replace(
        PROPAGATED,
        headline="{seen} on {at}: too little for checkpoints",
        means="torch.save and NCCL's segments in /dev/shm fail at this size: 'File too large', or "
        "SIGXFSZ",
        now="ulimit -f unlimited   in the job script; if refused: sbatch --propagate=NONE",
    ),
}


@dataclass(frozen=True, slots=True)
class FullTable:
    """A table of neighbours (`family`: ipv4 or ipv6) that had no room left: how often the kernel
    has said so since boot, how many seconds ago it did last, and how many neighbours there is room
    for by now (gc_thresh3; None: not readable, as in a network namespace of its own)."""

    family: str
    count: int
    age: float
    room: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Soft limits; -1 is unlimited. Bytes but for files and threads. None: nothing says so.

    threads_left is the least of what RLIMIT_NPROC and the cgroups' pids.max leave, with its name;
    memory_left likewise of MemAvailable and the cgroups' memory limits. memlock_binds is False
    where CAP_IPC_LOCK makes that limit void.

    rdma      the machine's RDMA devices: a container sees them also where it may not use one
    verbs     whether one of them can be opened
    closed    the mode or owner of their device files forbids it (EACCES, not EPERM)
    fabric    active ports of a network made for it, as `mlx5_0:1`; Ethernet's are not among them:
              many a card offers RDMA that its network can't carry
    inside    the kind of container that this is, or empty
    groups    ranks of each further communicator that the environment tells of
    sockets   data connections that NCCL opens for each of its own over TCP, by its variables
    cpu_seconds, addresses, data, file_bytes    what one process may use of CPU time, of address
              space, of private memory, and write to one file
    buffers   variable -> bytes that TCP may buffer of one connection at most, where it says so
    full      tables of neighbours that had no room left since boot, as far as the log can be read
    memory_errors   memory controllers that could not correct an error since boot; memory_log: what
              the kernel's log says last of each, and of a process that used such memory
    """

    memlock: int
    files: int
    shm_size: int | None
    shm_free: int | None
    shm_problem: str
    shm_leftovers: int
    threads_left: int | None
    threads_limit: str
    memory_left: int | None
    memory_limit: str
    rdma: tuple[str, ...]
    memlock_binds: bool = True
    verbs: bool = True
    closed: bool = False
    fabric: tuple[str, ...] = ()
    gpus: bool = False
    inside: str = ""
    files_hard: int | None = None
    sockets: int = 1
    groups: tuple[int, ...] = ()
    cpu_seconds: int = UNLIMITED
    addresses: int = UNLIMITED
    data: int = UNLIMITED
    file_bytes: int = UNLIMITED
    buffers: Mapping[str, int] = field(default_factory=dict)
    full: tuple[FullTable, ...] = ()
    memory_errors: tuple[UncorrectedErrors, ...] = ()
    memory_log: tuple[MemoryFailure, ...] = ()


def observe(host: Host, ctx: Context) -> ProcessLimits:
    limits = host.limits()
    if "max locked memory" not in limits or "max open files" not in limits:
        raise CannotObserve("/proc/self/limits names neither locked memory nor open files")
    ctx.mark("/dev/shm")
    size, free, problem = _shm(host)
    ctx.mark("/dev/infiniband")
    rdma = host.listdir("/sys/class/infiniband")
    fabric = tuple(port for port, layer in rdma_ports(host) if layer != "Ethernet")
    refusals = _refusals(host) if rdma else set()
    ctx.mark("limits")
    threads_left, threads_limit = _least(_threads(host))
    memory_left, memory_limit = _least(_memory(host))
    soft = {name: limit.soft for name, limit in limits.items()}
    ctx.mark(edac.TOP)
    failing = edac.uncorrected_errors(host)
    return ProcessLimits(
        memlock=limits["max locked memory"].soft,
        files=limits["max open files"].soft,
        shm_size=size,
        shm_free=free,
        shm_problem=problem,
        shm_leftovers=sum(
            name.startswith(("nccl-", "torch_")) for name in host.listdir("/dev/shm")
        ),
        threads_left=threads_left,
        threads_limit=threads_limit,
        memory_left=memory_left,
        memory_limit=memory_limit,
        rdma=rdma,
        memlock_binds=not _may_lock(host),
        verbs=0 in refusals,
        closed=errno.EACCES in refusals and 0 not in refusals,
        # NCCL's file in HOME is read only where there is something that it can switch off
        fabric=() if fabric and disabled_by(host) else fabric,
        gpus=bool(host.gpu_files()),
        inside=container.kind(host),
        files_hard=limits["max open files"].hard,
        sockets=_sockets(host),
        groups=_groups(host),
        buffers=_tcp_buffers(host),
        cpu_seconds=soft.get("max cpu time", UNLIMITED),
        addresses=soft.get("max address space", UNLIMITED),
        data=soft.get("max data size", UNLIMITED),
        file_bytes=soft.get("max file size", UNLIMITED),
        full=_full_tables(host, ctx),
        memory_errors=failing,
        memory_log=memory_failures(host, LOG_SECONDS) if failing else (),
    )


def _full_tables(host: Host, ctx: Context) -> tuple[FullTable, ...]:
    ctx.mark(kernel_log.KMSG)
    up = kernel_log.uptime(host)
    until, about = time.monotonic() + LOG_SECONDS, b" table overflow"
    ages: dict[str, list[float]] = {}
    try:
        for age, text in kernel_log.kernel_log(host, up, until, about) if up else ():
            if told := TABLE_FULL.search(text[: kernel_log.LINE]):
                family = "ipv6" if told[1] in ("ndisc_cache", "ipv6") else "ipv4"
                ages.setdefault(family, []).append(age)
    except CannotObserve:
        return ()
    return tuple(
        FullTable(
            family,
            len(of),
            round(min(of), 1),
            host.read_int(f"/proc/sys/net/{family}/neigh/default/gc_thresh3"),
        )
        for family, of in ages.items()
    )


def _tcp_buffers(host: Host) -> dict[str, int]:
    """The last of three numbers: the kernel grows a buffer up to there."""
    found = {}
    for name in ("tcp_rmem", "tcp_wmem"):
        words = (host.read_or_none(f"/proc/sys/net/ipv4/{name}") or "").split()
        if len(words) == 3 and (most := number(words[2])) is not None:
            found[f"net.ipv4.{name}"] = most
    return found


def _sockets(host: Host) -> int:
    """Only what is set: by itself NCCL takes one, in some clouds as many as 16."""
    said = (number(host.environ.get(name, "").strip()) for name in (THREADS, SOCKETS))
    threads, each = (max(1, count or 1) for count in said)
    return min(min(threads, THREADS_MOST) * each, SOCKETS_MOST)


def _groups(host: Host) -> tuple[int, ...]:
    said = (number(host.environ.get(name, "").strip()) or 1 for name in MESH)
    return tuple(size for size in said if 1 < size <= RANKS_MOST)


def _refusals(host: Host) -> set[int]:
    """What ibv_open_device() meets: the errno of each device file, 0 for one that can be opened. A
    folder that was bound into a container shows the files, and the container's device rules still
    refuse them."""
    folder = "/dev/infiniband"
    names = (name for name in host.listdir(folder) if name.startswith("uverbs"))
    return {host.refused(f"{folder}/{name}") for name in names}


def _may_lock(host: Host) -> bool:
    for line in (host.read_or_none("/proc/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            may = (number(line.partition(":")[2], 16) or 0) >> IPC_LOCK & 1
            users = (host.read_or_none("/proc/self/uid_map") or "").split()
            return bool(may) and users == FIRST_USER_NAMESPACE
    return False


def _shm(host: Host) -> tuple[int | None, int | None, str]:
    """Size and free bytes of /dev/shm, and why it can't be used."""
    try:
        space = host.space("/dev/shm")
    except CannotObserve as error:
        return None, None, str(error)
    return space.size, space.free, host.unwritable("/dev/shm")


def _threads(host: Host) -> Iterator[tuple[int, str]]:
    for name, most, used in host.process_limits():
        yield most - (used or 0), name


def _memory(host: Host) -> Iterator[tuple[int, str]]:
    kilobytes = {
        name: number(amount.removesuffix("kB"))
        for name, _, amount in (
            line.partition(":") for line in (host.read_or_none("/proc/meminfo") or "").splitlines()
        )
    }
    if (left := kilobytes.get("MemAvailable")) is not None:
        yield left * 1024, "MemAvailable"
    most, promised = kilobytes.get("CommitLimit"), kilobytes.get("Committed_AS")
    strict = host.read_int("/proc/sys/vm/overcommit_memory") == NEVER_OVERCOMMIT
    if strict and most is not None and promised is not None:
        yield max(0, most - promised) * 1024, "vm.overcommit_memory=2 (CommitLimit - Committed_AS)"
    for file, used_file in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for path, text in host.cgroup_files("memory", file):
            used = host.read_int(path.removesuffix(file) + used_file)
            # v1 says "no limit" as a number near 2^63; page cache counts as used but yields
            limit = number(text)
            if limit is not None and limit < 1 << 60 and used is not None:
                cache = _reclaimable(host, path.removesuffix(file))
                yield limit - used + cache, path


def _reclaimable(host: Host, folder: str) -> int:
    for line in (host.read_or_none(folder + "memory.stat") or "").splitlines():
        name, _, amount = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return number(amount) or 0
    return 0


def _least(candidates: Iterator[tuple[int, str]]) -> tuple[int | None, str]:
    return min(candidates, default=(None, ""), key=lambda c: c[0] or 0)


def judge(world: World[ProcessLimits], expect: Expect) -> Iterator[Found]:
    for key, missing in world.missing(Cause.CANNOT_OBSERVE).items():
        what, _, limit = missing.detail.partition(": ")
        if what == NO_PROCESS:
            yield Found("fork-refused", (world.subject(key),), saw=limit)
    over_rdma = [here.node for here, limits in world.each() if limits.fabric and limits.verbs]
    for here, limits in world.each():
        ranks = max(1, world.topology.ranks_on(here.node))
        # a container's limits are what it was started with
        blame = Blame.JOB if limits.inside else Blame.NODE
        wanted = 0
        if limits.rdma and limits.verbs and limits.memlock_binds:
            wanted = MEMLOCK_RDMA
        if (floor := expect.number("memlock_gib")) is not None:
            wanted = int(floor * GIB)
        if limits.memlock != UNLIMITED and limits.memlock < wanted:
            yield Found(
                "memlock-container" if limits.inside else "memlock-low",
                (here,),
                saw=f"locked memory is limited to {size(limits.memlock)}"
                + (f" · RDMA devices {', '.join(limits.rdma[:4])}" if limits.rdma else ""),
                expected=f"at least {size(wanted)}{expect.aside('memlock_gib')}",
                blame=blame,
            )
        # one node needs no fabric, and without a GPU nobody asks for it
        if limits.fabric and not limits.verbs and limits.gpus and world.topology.several_nodes:
            where = " in this container" * bool(limits.inside)
            why = f"no /dev/infiniband/uverbs* that can be opened{where}"
            if limits.closed:
                why = f"/dev/infiniband/uverbs*: Permission denied (EACCES){where}"
            if over_rdma:
                why += f" · {parties(over_rdma, 3)} can open theirs"
            yield Found(
                "rdma-permission-denied" if limits.closed else "rdma-not-exposed",
                (here,),
                saw=f"active: {parties(limits.fabric, 4)} · {why}",
                expected="RDMA devices that the job can open",
                blame=blame,
                # NCCL takes sockets here and RDMA there, and finds no way between the two
                status=Status.FAIL if over_rdma else Status.WARN,
                confidence=Confidence.LIKELY if over_rdma else Confidence.CERTAIN,
            )
        yield from _judge_shm(here, limits, ranks, expect, blame)
        yield from _judge_process(here, limits)
        peers = world.topology.size
        away = peers - ranks if limits.gpus and not (limits.rdma and limits.verbs) else 0
        open_at_once = max(FILES_PER_PEER * peers, 2 * (limits.sockets + 1) * away)
        groups = sum(min(group, peers) for group in limits.groups)
        alone = FILES_PER_RANK + open_at_once
        usual = min(alone + FILES_PER_PEER * groups, FILES_MOST)
        files = int(expect.number("nofile") or usual)
        if limits.files != UNLIMITED and limits.files < files:
            least = max(FILES_AT_LEAST, FILES_OF_STORE + peers)
            enough = limits.files >= least and not expect.source("nofile")
            hard = limits.files_hard
            most = "unlimited" if hard == UNLIMITED else str(hard)
            wanted = max(files, 65536)
            if hard is not None and files <= hard < wanted:
                wanted = hard
            yield Found(
                "nofile-low",
                (here,),
                saw=f"a process may open {limits.files} files"
                + (
                    f" (soft limit; the hard limit is {most})"
                    if hard not in (None, limits.files)
                    else ""
                )
                + (
                    f" · {THREADS} x {SOCKETS} = {limits.sockets}"
                    if files == usual and open_at_once > FILES_PER_PEER * peers
                    else ""
                )
                + (
                    f" · {plural(len(limits.groups), 'further communicator')} of "
                    f"{', '.join(map(str, limits.groups))} ranks, as accelerate launch says"
                    if files == usual and limits.groups
                    else ""
                ),
                # how many connections a communicator has depends on channels and topology
                confidence=Confidence.LIKELY
                if files == usual and limits.files >= alone
                else Confidence.CERTAIN,
                expected=f"at least {files} for {plural(peers, 'rank')}{expect.aside('nofile')}",
                fields={"wanted": str(wanted)},
                status=Status.WARN if enough else None,
            )
        if limits.threads_left is not None and limits.threads_left < THREADS_PER_RANK * ranks:
            yield Found(
                "threads-low",
                (here,),
                saw=f"{limits.threads_left} more threads allowed by {limits.threads_limit}",
                expected=f"{THREADS_PER_RANK} for each of {ranks} ranks",
                confidence=Confidence.LIKELY,
                fields={"limit": limits.threads_limit},
            )
        if limits.memory_left is not None and limits.memory_left < MEMORY_PER_RANK * ranks:
            yield Found(
                "memory-low",
                (here,),
                saw=f"{size(limits.memory_left)} of memory left by {limits.memory_limit}",
                expected=f"{size(MEMORY_PER_RANK)} for each of {ranks} ranks",
                confidence=Confidence.LIKELY,
            )
        low = {name: most for name, most in limits.buffers.items() if most < BUFFER_LEAST}
        if low and world.topology.several_nodes:
            yield Found(
                "tcp-buffers-low",
                (here,),
                saw=" and ".join(f"{name} is at most {size(most)}" for name, most in low.items()),
                expected=f"at least {size(BUFFER_LEAST)}",
            )
        yield from _judge_neighbours(here, limits)
        yield from _judge_memory(here, limits)


def _judge_neighbours(here: Subject, limits: ProcessLimits) -> Iterator[Found]:
    full = [table for table in limits.full if table.age < LOG_RECENT]
    if not full:
        return
    said = []
    for table in full:
        times = f"{table.count} times, last " if table.count > 1 else ""
        name = "the ARP table" if table.family == "ipv4" else "the neighbour table of IPv6"
        room = "" if table.room is None else f", gc_thresh3 is {table.room}"
        said.append(f"{name} was full ({times}{duration(table.age)} ago{room})")
    third = max(NEIGHBOURS, 4 * min(full[0].room or 0, RANKS_MOST))
    yield Found(
        "arp-table-full",
        (here,),
        saw=" · ".join(said),
        expected="no 'neighbor table overflow' in the kernel's log of the last hour",
        fields={
            "family": full[0].family,
            "first": str(third // 4),
            "second": str(third // 2),
            "third": str(third),
        },
    )


def _judge_memory(here: Subject, limits: ProcessLimits) -> Iterator[Found]:
    """Corrected errors are no fault: memory of any size has some."""
    failing = [of for of in limits.memory_errors if of.count > 0]
    if not failing:
        return
    logged = {one.controller: one for one in limits.memory_log}
    said = []
    for of in failing:
        dimms = [f"{label} ({n})" if n < of.count else label for label, n in of.dimms.items()]
        at = f" at DIMM {parties([escaped(text) for text in dimms], LISTED)}" if dimms else ""
        one = logged.get(of.controller)
        last = f", last {duration(one.age)} ago" if one else ""
        said.append(f"{plural(of.count, 'error')} of memory controller {of.controller}{at}{last}")
    about = [logged[n] for n in (*(of.controller for of in failing), "") if n in logged]
    yield Found(
        "memory-ecc-uncorrected",
        (here,),
        saw=parties(said, LISTED),
        expected="ue_count of 0 of all memory controllers",
        # the kernel may have taken that memory out of use since
        confidence=Confidence.LIKELY,
        fields={"edac": edac.TOP},
        evidence=tuple(
            f"in the kernel's log {duration(one.age)} ago: {one.words}" for one in about[-LISTED:]
        ),
    )


def _judge_process(here: Subject, limits: ProcessLimits) -> Iterator[Found]:
    """What is unlimited nearly everywhere."""
    least, plenty = (
        (CUDA_AT_LEAST, CUDA_PLENTY) if limits.gpus else (ADDRESSES_AT_LEAST, ADDRESSES_PLENTY)
    )
    seconds, addresses, length = limits.cpu_seconds, limits.addresses, limits.file_bytes
    data, much = limits.data, DATA_BESIDE_CUDA if limits.gpus else DATA_PLENTY
    for code, limit, enough, wanted, can in (
        ("cpu-time-low", seconds, CPU_AT_LEAST, CPU_PLENTY, f"use {duration(seconds)} of CPU time"),
        ("address-space-low", addresses, least, plenty, f"map {size(addresses)} of address space"),
        ("data-size-low", data, DATA_AT_LEAST, much, f"have {size(data)} of data"),
        ("file-size-low", length, FILE_AT_LEAST, FILE_PLENTY, f"write files of {size(length)}"),
    ):
        if limit != UNLIMITED and limit < wanted:
            beside = " beside GPUs" if limits.gpus and code == "address-space-low" else ""
            yield Found(
                code,
                (here,),
                saw=f"a process may {can} at most{beside}",
                expected="unlimited",
                # how much CUDA maps depends on its version, the node and its GPUs
                confidence=Confidence.LIKELY if beside else Confidence.CERTAIN,
                status=Status.WARN if limit >= enough else None,
            )


def _judge_shm(
    here: Subject, limits: ProcessLimits, ranks: int, expect: Expect, blame: Blame
) -> Iterator[Found]:
    if limits.shm_problem.endswith(FULL):
        # by files of jobs: no fault of the node
        yield Found("shm-full", (here,), saw=limits.shm_problem, expected="room for files")
        return
    if limits.shm_problem or limits.shm_size is None or limits.shm_free is None:
        yield Found(
            "shm-unusable",
            (here,),
            saw=limits.shm_problem or "/dev/shm can't be measured",
            expected="a tmpfs that every user can write to",
            blame=blame,
        )
        return
    comfort = int((expect.number("shm_gib") or SHM_COMFORT / GIB) * GIB)
    if limits.shm_free < SHM_PER_RANK * ranks:
        left = f" · {limits.shm_leftovers} segments of NCCL or torch are there"
        yield Found(
            "shm-full",
            (here,),
            saw=f"/dev/shm has {size(limits.shm_free)} free of {size(limits.shm_size)}"
            + (left if limits.shm_leftovers else ""),
            expected=f"{size(SHM_PER_RANK)} for each of {ranks} ranks",
            confidence=Confidence.LIKELY,
        )
    elif limits.shm_size < comfort:
        yield Found(
            "shm-small",
            (here,),
            saw=f"/dev/shm is {size(limits.shm_size)}",
            expected=f"at least {size(comfort)}{expect.aside('shm_gib')}",
            status=Status.FAIL if expect.source("shm_gib") else None,
        )


def measured(world: World[ProcessLimits]) -> Measured:
    values = list(world.seen.values())
    if not values:
        return Measured()
    memlock = min((v.memlock for v in values), key=lambda n: n if n != UNLIMITED else 1 << 62)
    shm = min((v.shm_size or 0 for v in values), default=0)
    files = min((v.files for v in values), key=lambda n: n if n != UNLIMITED else 1 << 62)
    return Measured(
        f"memlock {size(memlock)} · /dev/shm {size(shm)} · {count(files)} files",
        {"memlock_bytes": memlock, "shm_bytes": shm, "files": files},
    )
