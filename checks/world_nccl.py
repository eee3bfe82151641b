"""Does an NCCL all-reduce return correct results, and at what bandwidth?

Level        standard
Looks at     whether CUDA starts on every rank's GPU; all-reduces of 4 B to 64 MiB between all GPUs
             in a group that meets on a free port: each element of the sums, the time and the bus
             bandwidth of each size (one that would need more than half of the remaining time,
             judged by smaller ones, is left out); what NCCL logs meanwhile (network, transport of
             each connection, GPUDirect RDMA, NVLink, warnings); /sys/class/infiniband, the error
             counters before and after
Fails if     CUDA or NCCL does not start; two ranks share a GPU; a sum is wrong; a rank dies, fails
             or does not reach the step where the others wait; an all-reduce hangs; ranks chose
             different networks; TCP was chosen between nodes that all have InfiniBand, EFA or fast
             RoCE ports
Warns if     TCP was chosen although there are slow RoCE ports; GPUs connected by NVLink don't use
             it; GPUDirect RDMA is off on some nodes only; without NCCL_IB_HCA, NCCL uses at most
             half of a node's active InfiniBand ports, or fewer than on nodes with the same; NCCL
             prints a warning with a known cause; an RDMA port counts errors or lost packets
             meanwhile; its own diagnostics (from 2.31, where the job sets NCCL_RUN_DIAGNOSTICS=1)
             found something. A size was left out and the smaller ones show less than 12.5 MB/s;
             never for less: an all-reduce is as slow on every rank as its slowest connection
Undecided    torch is not installed, or has no NCCL or no GPU for every rank where the job is given
             GPUs
Not covered  the bandwidth at the size of gradients (from 1 GiB on); the transport of collectives
             other than all-reduce; ranks that chose different networks with an NCCL before 2.22,
             which hangs before they can be compared. The log formats are those of NCCL 2.18 to
             2.31; different wording of a later one is ignored. On AMD's GPUs torch calls RCCL nccl,
             and its variables are NCCL_* too: not tested there yet
Seen as      "Duplicate GPU detected", "Multiple Ranks are using the same GPU", "Bootstrap : no
             socket interface found", "failed to extend /dev/shm/nccl-", "Mismatched NCCL version
             detected", "ncclUnhandledSystemError", "ncclUnhandledCudaError", "ncclInternalError",
             "NET/IB : No device found", "CUDA error: system not yet initialized", "Watchdog caught
             collective operation timeout", a hang in the first collective, "Using network Socket",
             "via NET/Socket", "via SHM/direct/direct", "GPU Direct RDMA Disabled for HCA", training
             that is much slower on several nodes than on one
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.collectives import allreduce, nccl_transport, stalls
from preflight.domains.collectives.allreduce import LeftOut, Reduced
from preflight.domains.collectives.nccl_log_capture import NcclLogCapture, nccl_report
from preflight.domains.collectives.nccl_transport import NcclReport
from preflight.domains.collectives.process_group import (
    agree,
    decided_by_rank_0,
    decline,
    join,
    leave,
)
from preflight.domains.collectives.stalls import Signature
from preflight.domains.gpu.given import undecided_where_given
from preflight.domains.net import rdma_traffic
from preflight.domains.torch.devices import own_gpu
from preflight.domains.torch.steps import Steps, Trouble, readable
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import KIB, MIB
from preflight.model import Blame, Command, FindingType, Found, Measured, Status, World, of_each

CHECK = Check(
    scope=Scope.WORLD,
    stage=Stage.TRAINING,
    budget=60.0,
    needs=("rdzv.store", "net.payload", "gpu.visible"),
    level=Level.STANDARD,
    requires=frozenset({Requirement.TORCH, Requirement.GPU}),
    torch=True,
    disturbs="1 GiB of every GPU",
    explains=("world.ddp",),
)

# bytes: repeats. 4 B is latency; the protocols LL, LL128 and Simple follow each other as the size
# grows
SIZES = {4: 5, 64 * KIB: 5, MIB: 5, 64 * MIB: 5}

WARNED = ("shm-full", "fabric-failed", "p2p-disabled", "nvls-failed")
"""What NCCL may warn of and get over: it then takes a slower way."""

SIGNATURES = (
    Signature(
        r"Duplicate GPU detected|Multiple Ranks are using the same GPU",
        "gpu-shared",
        "a different GPU for every rank",
    ),
    Signature(
        r"Mismatched NCCL version",
        "version-mismatch",
        "the same libnccl on all ranks",
        job=True,
    ),
    Signature(
        r"/dev/shm/nccl|shared memory segment|posix_fallocate",
        "shm-full",
        "some 10 MiB of /dev/shm for each rank",
    ),
    Signature(
        r"no socket interface found|No interface found|no socket interface",
        "interface-unknown",
        "an interface that is up and matches NCCL_SOCKET_IFNAME",
    ),
    Signature(
        r"No device found|initialize any NET plugin|network .* not found",
        "network-missing",
        "the network that NCCL_NET names, or no NCCL_NET",
    ),
    Signature(
        r"ibv_|IMEX|Got completion from peer|Got async .*(port error|catastrophic)",
        "fabric-failed",
        "registered memory and queue pairs",
    ),
    Signature(
        r"P2P is disabled between NVLINK",
        "p2p-disabled",
        "peer access between GPUs connected by NVLink",
    ),
    Signature(
        r"NVLS\) [Mm]ulticast",
        "nvls-failed",
        "multicast memory in the NVSwitches",
    ),
    Signature(r"[Oo]ut of memory", "gpu-full", "1 GiB free on every GPU"),
    Signature(
        r"(CUDA|HIP) (driver|error|unknown|initialization)|NVIDIA driver|(CUDA|HIP) GPUs|cudaError|"
        r"[Cc]uda failure|ncclUnhandledCudaError",
        "cuda-failed",
        "a CUDA or HIP context on every rank's GPU",
    ),
    Signature(
        r"ncclUnhandledSystemError|unhandled system error|ncclSystemError|ncclInternalError|"
        r"internal error|ncclInvalidUsage|invalid usage|ncclInvalidArgument",
        "nccl-failed",
        symptom=True,
    ),
)

FINDINGS = {
    **stalls.FINDINGS,
    **allreduce.FINDINGS,
    **nccl_transport.FINDINGS,
    **rdma_traffic.FINDINGS,
    "gpu-shared": FindingType(
        headline="two ranks use the same GPU: {seen}",
        who="job author",
        cause="a missing torch.cuda.set_device(local_rank), or a CUDA_VISIBLE_DEVICES that "
        "repeats a GPU",
        means="'Duplicate GPU detected : rank … and rank … both on CUDA device …'",
        now="echo $CUDA_VISIBLE_DEVICES   on each rank: the masks must not overlap",
        text="call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the first use of "
        "CUDA",
        commands=(Command("nvidia-smi -L || amd-smi list", "the node"),),
        blame=Blame.JOB,
    ),
    "version-mismatch": FindingType(
        headline="the ranks have different versions of NCCL: {seen}",
        who="image author",
        cause="a different libnccl from LD_LIBRARY_PATH or LD_PRELOAD on some ranks",
        means="'Mismatched NCCL version detected', or a hang in the first collective",
        now="unset LD_LIBRARY_PATH LD_PRELOAD",
        text="use one image for all ranks; pip list | grep nccl shows the version that torch came "
        "with",
        blame=Blame.JOB,
    ),
    "shm-full": FindingType(
        headline="NCCL runs out of shared memory on {at}",
        who="job author",
        cause="a container's default of 64 MiB for /dev/shm, or files that ended jobs left there",
        means="'Error: failed to extend /dev/shm/nccl-… to … bytes', 'unhandled system error'",
        now="export NCCL_SHM_DISABLE=1   slower, but the job starts",
        text="start the container with --shm-size=8g (docker, podman) or an emptyDir with medium "
        "Memory at /dev/shm (pod)",
        commands=(Command("ls -lh /dev/shm", "the node"),),
        blame=Blame.JOB,
    ),
    "interface-unknown": FindingType(
        headline="NCCL_SOCKET_IFNAME matches no interface of {at}",
        who="job author",
        cause="an NCCL_SOCKET_IFNAME meant for another machine, or a typo",
        means="'Bootstrap : no socket interface found', the other ranks wait",
        now="unset NCCL_SOCKET_IFNAME",
        text="set NCCL_SOCKET_IFNAME to a prefix of the interface name, to =NAME for an exact "
        "one, or to ^PREFIX to exclude some",
        commands=(Command("ip -brief address", "the node"),),
        blame=Blame.JOB,
    ),
    "network-missing": FindingType(
        headline="NCCL does not find the network that it is configured to use: {seen}",
        who="job author",
        cause="an NCCL_NET or NCCL_NET_PLUGIN that names a network missing on this machine or "
        "image",
        means="'NET/IB : No device found' or 'Failed to initialize any NET plugin'",
        now="unset NCCL_NET NCCL_NET_PLUGIN",
        text="expose the devices to the container: docker, podman: "
        "--device=/dev/infiniband; pod: the resource of the RDMA device plugin",
        commands=(Command("ls /sys/class/infiniband", "the node"),),
        blame=Blame.JOB,
    ),
    "fabric-failed": FindingType(
        headline="NCCL can't use the fabric on {at}",
        cause="a limit on locked memory, a wrong NCCL_IB_GID_INDEX, or an IMEX service that is "
        "down",
        means="'Call to ibv_reg_mr failed', 'ibv_modify_qp failed with error Invalid argument'",
        now="export NCCL_IB_DISABLE=1   slower",
        text="raise the limit: ulimit -l unlimited; unset NCCL_IB_GID_INDEX (NCCL 2.21 and later "
        "choose it themselves); NVLink across nodes: NCCL_MNNVL_ENABLE=0",
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
    ),
    "p2p-disabled": FindingType(
        headline="P2P is disabled between GPUs that NVLink connects, on {at}",
        cause="a driver setting, a hypervisor, or a GPU that has lost its NVLink",
        means="'P2P is disabled between NVLINK connected GPUs'",
        text="reset the GPUs or reboot the node; check the driver's settings",
        now="export NCCL_IGNORE_DISABLED_P2P=1   slower",
        commands=(Command("nvidia-smi topo -p2p r", "the node"),),
        blame=Blame.NODE,
    ),
    "nvls-failed": FindingType(
        headline="NVLink SHARP fails on {at}",
        cause="a fabric manager that is old, failed or was restarted while the driver was "
        "running; a container or virtual machine without permission for multicast",
        means="'Failed to bind NVLink SHARP (NVLS) Multicast memory', 'unhandled cuda error'",
        now="export NCCL_NVLS_ENABLE=0   somewhat slower within the node",
        text="restart nvidia-fabricmanager while all GPUs are idle, in the driver's version",
        commands=(Command("nvidia-smi -q | grep -A3 -i fabric", "the node"),),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NODE,
    ),
    "gpu-full": FindingType(
        headline="the GPU of {at} has no free memory",
        who="job author",
        cause="another process on the GPU, often a rank of a job that has not ended",
        means="'CUDA out of memory' or an NCCL error before the first step",
        text="stop the processes that hold the memory",
        now="nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
        commands=(
            Command("nvidia-smi --query-compute-apps=pid,used_memory --format=csv"),
            Command("amd-smi process", "a node with AMD GPUs"),
        ),
    ),
    "cuda-failed": FindingType(
        headline="CUDA fails on {at}: {seen}",
        cause="a driver older than torch's CUDA, a fabric manager that is not running, a faulty "
        "GPU",
        means="'CUDA error: system not yet initialized', 'The NVIDIA driver on your system is too "
        "old', or training silently runs on the CPU",
        text="exclude that node; install a driver for the CUDA version that torch was built with, "
        "and nvidia-fabricmanager on NVSwitch machines",
        commands=(
            Command("nvidia-smi || amd-smi", "the node"),
            Command("dmesg -T | grep -iE 'xid|amdgpu'", "the node"),
        ),
        blame=Blame.NODE,
    ),
    "nccl-failed": FindingType(
        headline="NCCL fails: {seen}",
        who="job author",
        cause="an error that only NCCL's own log explains",
        means="'unhandled system error' or 'internal error', run with NCCL_DEBUG=WARN for details",
        text="read NCCL's own log (NCCL_DEBUG=INFO) (NCCL_DEBUG=INFO)",
        now="NCCL_DEBUG=INFO preflight run --only world.nccl -v",
        commands=(
            Command("preflight run --only world.nccl", "the node", "the GPUs for some seconds"),
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class GpuSums:
    """The all-reduces of a rank in rising size, as far as it came, the NCCL that torch has, what
    that said of the ways that it took (None where it never came to that), the size for which there
    was no time, and of the first rank of a node what its RDMA ports counted meanwhile."""

    nccl: str
    reduced: tuple[Reduced, ...]
    trouble: Trouble | None = None
    heard: NcclReport | None = None
    left_out: LeftOut | None = None
    ports: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def observe(host: Host, ctx: Context) -> GpuSums:
    import torch

    steps = Steps(ctx)
    obstacle = ""
    with steps.until_trouble():
        steps.at("CUDA")
        obstacle = _obstacle(ctx)
        if not obstacle:
            device = torch.device("cuda", own_gpu(ctx, torch.cuda.device_count()))
            torch.cuda.set_device(device)
            torch.zeros(1, device=device)
    if steps.trouble is not None:
        decline(ctx, steps.trouble.text)  # the others need not wait for us
        return GpuSums("", (), steps.trouble)
    with undecided_where_given(host):
        agree(ctx, obstacle)
    reduced: list[Reduced] = []
    left_out = None
    before = rdma_traffic.counters_before(host, ctx.local_rank)
    with NcclLogCapture() as ear, steps.until_trouble():
        # with its device the group connects at once, and not in the first collective
        join(host, ctx, steps, "nccl", device)
        if not _cannot_talk(ctx, steps, ear):  # then the first collective would hang
            left_out = allreduce.all_reduce(ctx, steps, SIZES, reduced, device)
    heard = nccl_report(host, ear.log(ctx.rank))  # before the others hang up
    leave(ctx, steps)
    ports = rdma_traffic.grown_since(host, before)
    return GpuSums(_version(torch), tuple(reduced), steps.trouble, heard, left_out, ports)


def _cannot_talk(ctx: Context, steps: Steps, ear: NcclLogCapture) -> bool:
    """Whether the ranks chose networks that can't talk to each other; the same on all ranks."""
    if ctx.local_world_size == ctx.world_size:
        return False  # within a node none is used
    steps.at("network")
    return bool(
        decided_by_rank_0(
            ctx, "network", ear.log(ctx.rank).network, nccl_transport.different_networks
        )
    )


def _obstacle(ctx: Context) -> str:
    """Why there is nothing to look at; what CUDA raises when it can't start comes out as it is."""
    import torch
    import torch.distributed as dist

    if not dist.is_nccl_available():
        return f"torch {torch.__version__} has no NCCL"
    try:
        torch.cuda.init()
    except RuntimeError as error:
        if re.search(r"No (CUDA|HIP) GPUs|no NVIDIA driver", str(error)):
            return readable(str(error))
        raise
    count = torch.cuda.device_count()
    if own_gpu(ctx, count) is None:
        return f"fewer GPUs than ranks: {count} < {ctx.local_world_size}"
    return ""


def _version(torch: Any) -> str:
    """The NCCL that torch was built with."""
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def judge(world: World[GpuSums], expect: Expect) -> Iterator[Found]:
    found = list(allreduce.wrong_sums(world, of_each(world.seen, lambda v: v.reduced)))
    found += stalls.diagnose(world, SIGNATURES)
    heard = _heard(world)
    found += nccl_transport.findings(world, heard)
    found += allreduce.slow_network(world, _left_out(world))
    found += rdma_traffic.port_errors(world, world.told(_used_ports))
    yield from found
    codes = set(WARNED) - {f.code for f in found}
    yield from nccl_transport.warnings_survived(
        world, heard, [s for s in SIGNATURES if s.code in codes]
    )


def _used_ports(seen: GpuSums) -> Mapping[str, Mapping[str, int]] | None:
    """What the ports counted over which NCCL went; None where that is nothing."""
    used = {device.partition("/")[0] for device in seen.heard.log.devices} if seen.heard else set()
    return {name: grown for name, grown in seen.ports.items() if name in used} or None


def _heard(world: World[GpuSums]) -> dict[str, NcclReport]:
    return world.told(lambda v: v.heard)


def _left_out(world: World[GpuSums]) -> dict[str, LeftOut]:
    return world.told(lambda v: v.left_out)


def measured(world: World[GpuSums]) -> Measured:
    heard = _heard(world)
    # the library that ran; torch may have been built with another one
    version = next((h.log.version.partition("+")[0] for h in heard.values() if h.log.version), "")
    version = version or next((v.nccl for v in world.seen.values() if v.nccl), "")
    made = allreduce.measured_allreduce(
        of_each(world.seen, lambda v: v.reduced),
        _left_out(world),
        f"NCCL {version}" if version else "",
    )
    way = nccl_transport.transport_summary(heard)
    # first, since a narrow screen cuts the end
    values = {**made.values, "transport": way} if way else made.values
    return Measured(" · ".join(filter(None, (way, made.text))), values)
