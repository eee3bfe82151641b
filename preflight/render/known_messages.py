"""What torch, NCCL, CUDA, the kernel and SLURM print, what each message means to somebody who knows
it, and which findings it may be of, the most likely first. Data for `explain TEXT` and `diagnose`.

To add one: a `Message` below, and the line of a public report in its test.
What a check quotes in "Seen as" or `means` is known without being listed here; here is what has
several usual causes, follows from another error, or is harmless. Of those that are in a line the
first one counts.
"""

from __future__ import annotations

from preflight.frozen import dataclass
from preflight.strenum import StrEnum


class MessageKind(StrEnum):
    """What a message is. FOLLOWS: said because something else has failed before. HARMLESS: not why
    a job fails, though it is often suspected."""

    ERROR = "error"
    FOLLOWS = "follows"
    HARMLESS = "harmless"


@dataclass(frozen=True, slots=True)
class Message:
    """words: alternatives, each to be found in a line whatever the case; … is up to 200 characters
    that differ. findings: `check:code`, or a check's id. do: what to do where no check can tell."""

    words: tuple[str, ...]
    means: str
    findings: tuple[str, ...] = ()
    do: str = ""
    kind: MessageKind = MessageKind.ERROR


def _error(*words: str, means: str, findings: str = "", do: str = "") -> Message:
    return Message(words, means, tuple(findings.split()), do)


def _follows(*words: str, means: str, findings: str = "", do: str = "") -> Message:
    return Message(words, means, tuple(findings.split()), do, MessageKind.FOLLOWS)


def _harmless(*words: str, means: str, findings: str = "", do: str = "") -> Message:
    return Message(words, means, tuple(findings.split()), do, MessageKind.HARMLESS)


RENDEZVOUS = (
    _error(
        *("The client socket has timed out after … connect to (localhost,",),
        *("The client socket has timed out after … connect to (127.",),
        means="this rank looked for rank 0's store on its own machine, and nobody listens there",
        findings="env.identity:address-loopback rdzv.reach:localhost rdzv.reach:refused",
    ),
    _error(
        "The client socket has timed out after … connect to",
        means="this rank could not connect to rank 0's store at that address: rank 0 has not "
        "started there, the name leads elsewhere, or a firewall drops the connection",
        findings="rdzv.reach:refused rdzv.reach:dropped net.name:master-unresolved "
        "net.name:master-elsewhere env.identity:master-differs rdzv.reach:host-dead",
    ),
    _error(
        *("failed to connect to … errno: 110", "failed to connect to … Connection timed out"),
        means="no answer to the connection: a firewall drops it, or no machine has this address",
        findings="rdzv.reach:dropped rdzv.reach:host-dead net.name:master-elsewhere",
    ),
    _error(
        *("failed to connect to … errno: 113", "failed to connect to … No route to host"),
        means="no machine answers at this address in its network, or a firewall rejects it",
        findings="rdzv.reach:host-dead rdzv.reach:prohibited rdzv.reach:no-route",
    ),
    _harmless(
        *("failed to connect to … errno: 99 -", "errno: 97 - Address family not supported"),
        means="this machine has no IPv6: torch takes IPv4 next",
        findings="net.name:ipv6-first net.interface:loopback-down",
    ),
    _error(
        "network addresses of ([",
        means="MASTER_ADDR is an IPv6 address in brackets, which are taken for a part of the name",
        findings="env.identity:address-malformed net.name:master-unresolved",
        do="export MASTER_ADDR without the brackets",
    ),
    _harmless(
        *("is not yet listening … will retry",),
        *("failed to connect to … errno: 111", "failed to connect to … Connection refused"),
        means="rank 0 did not listen yet, torch tries again. Where it goes on for minutes: rank 0 "
        "has not started, has died, or runs elsewhere",
        findings="rdzv.reach:refused net.name:master-elsewhere env.identity:master-differs",
    ),
    _harmless(
        *("IPv6 network addresses of … cannot be retrieved (gai error: -2",),
        means="the name has no IPv6 address. Where the same is said of IPv4: it does not resolve",
        findings="net.name:master-unresolved net.name:hostname-unusable",
    ),
    _error(
        *("network addresses of … cannot be retrieved", "Name or service not known"),
        *("Temporary failure in name resolution", "Could not resolve hostname"),
        means="a name does not resolve on this node",
        findings="net.name:master-unresolved net.name:hostname-unusable net.name:resolver-silent "
        "net.name:master-late rdzv.torchrun:hostname-unknown",
    ),
    _harmless(
        "The hostname of the client socket cannot be retrieved",
        means="a reverse lookup of a rank's address failed: nothing depends on it, but where the "
        "name server does not answer, it takes seconds for each rank",
        findings="net.name:reverse-slow rdzv.store:store-slow",
    ),
    _error(
        *("The server socket has failed to listen", "EADDRINUSE", "Address already in use"),
        "The server socket has failed to bind",
        means="something else listens on MASTER_PORT at rank 0's node: an earlier run that has not "
        "ended, another job with the same port, or a second rank 0 of this one",
        findings="net.port:port-leftover net.port:port-held rdzv.store:port-taken "
        "env.identity:launchers-nested job.ranks:rank-duplicate",
    ),
    _error(
        *("waiting for clients. … clients joined", "waiting for clients … clients joined"),
        means="rank 0's store waited in vain for the other ranks: they were not started, are stuck "
        "before init_process_group, or can't reach this address",
        findings="rdzv.reach:absent job.ranks:rank-absent env.identity:world-size-mismatch "
        "rdzv.reach:dropped",
    ),
    _follows(
        "retrieving ncclUniqueId from [0] … Connection reset by peer",
        "retrieving ncclUniqueId from [0] … Connection was likely closed",
        "retrieving ncclUniqueId from [0] … Broken pipe",
        means="rank 0 ended before this rank's first NCCL call: the reason stands in rank 0's log",
        findings="job.ranks:rank-raised job.ranks:rank-killed job.ranks:rank-oom",
    ),
    _error(
        "retrieving ncclUniqueId from [0]",
        means="rank 0 did not come to the NCCL call that this rank makes: it is still busy "
        "elsewhere (download, data, compilation), calls another collective, or hangs",
        findings="job.ranks:rank-late job.collectives:collective-mismatch "
        "job.collectives:rank-stuck job.collectives:groups-differ",
    ),
    _error(
        "in store based barrier",
        means="not as many ranks as WORLD_SIZE came to init_process_group() or new_group(). A "
        "worker_count above world_size: ranks were started twice (torchrun and mp.spawn, srun and "
        "torchrun), or the store or init file is of an earlier run",
        findings="job.ranks:rank-absent env.identity:launchers-nested host.storage:init-leftover "
        "job.ranks:rendezvous-file-stale",
    ),
    _error(
        *("wait timeout after … keys", "Wait timeout", "Socket Timeout"),
        means="a rank waited for what another rank was to write to the store: that one is missing, "
        "late, or has failed",
        findings="rdzv.reach:absent job.ranks:rank-absent job.ranks:rank-late "
        "job.collectives:store-key-unset",
    ),
    _follows(
        *("Connection was likely closed. Did the remote server shutdown or crash",),
        *("sendBytes failed on SocketImpl", "recvVector failed", "recvBytes failed"),
        "Failed to recv, got 0 bytes",
        means="the process with the store (rank 0, or torchrun on the first node) has ended: its "
        "log says why",
        findings="job.ranks:rank-raised job.ranks:rank-oom job.ranks:rank-killed rdzv.reach:lost",
    ),
    _error(
        "RendezvousTimeoutError",
        means="fewer nodes than --nnodes came to torchrun's rendezvous in time",
        findings="job.ranks:rendezvous-incomplete rdzv.torchrun:rendezvous-differs "
        "rdzv.reach:dropped rdzv.torchrun:store-host-missing",
    ),
    _error(
        *("RendezvousConnectionError", "The connection to the C10d store has failed"),
        means="torchrun does not reach the store of its rendezvous at --rdzv-endpoint: no node "
        "takes itself for its host, it has not started, or a firewall is between",
        findings="job.ranks:rendezvous-unreachable rdzv.torchrun:store-host-missing "
        "rdzv.torchrun:store-host-duplicate rdzv.reach:refused rdzv.reach:dropped",
    ),
    _follows(
        *("RendezvousClosedError", "detected that the rendezvous is closed"),
        "RendezvousGracefulExitError",
        means="the rendezvous is over: another node failed or finished, or this is a node of an "
        "ended run with the same --rdzv-id",
        do="look for the first error in the logs of the other nodes; give each run its own "
        "--rdzv-id",
        findings="job.ranks:rendezvous-incomplete rdzv.torchrun:rendezvous-differs",
    ),
    _error(
        *("failed to send a keep-alive", "has no keep-alive", "keep-alive heartbeat"),
        means="torchrun on that node was not heard for long: it is gone, overloaded or cut off, or "
        "the clocks differ",
        findings="rdzv.reach:lost rdzv.reach:cut-off rdzv.reach:agent-paused agree.clock",
    ),
    _error(
        *("environment variable … expected, but not set",),
        means="the script was not started by a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR "
        "and MASTER_PORT",
        findings="job.ranks:not-launched env.identity:incomplete job.backend:launcher-unread",
    ),
    _error(
        *("Default process group has not been initialized",),
        means="torch.distributed is used before init_process_group(), after "
        "destroy_process_group(), or in a process that has no group (a DataLoader worker, "
        "a single-process run of the script)",
        do="move the call behind init_process_group(), or ask dist.is_initialized() first",
    ),
    _error(
        "trying to initialize the default process group twice",
        means="init_process_group() is called a second time, often by a library that had done so",
        do="ask dist.is_initialized() before init_process_group()",
    ),
    _error(
        *("Ping failed, invalid value returned", "TCPStore … failed to connect/validate"),
        means="what answers at MASTER_ADDR:MASTER_PORT is not this job's store",
        findings="net.port:port-held rdzv.reach:not-a-meeting rdzv.reach:intercepted",
    ),
    _error(
        "use_libuv was requested but PyTorch was buil",
        means="this build of torch (Windows, or one of your own) has no libuv for its store",
        do="export USE_LIBUV=0, or add ?use_libuv=0 to the URL of init_method",
    ),
)

COLLECTIVES = (
    _error(
        "Watchdog caught collective operation timeout",
        means="this rank waited for a collective until its timeout. Mostly another rank never "
        "called it (other code, fewer batches, busy on its own); seldom the network or a GPU. The "
        "rank with the lowest SeqNum in these lines is the one that is behind",
        findings="job.collectives:collective-mismatch job.collectives:rank-stuck "
        "job.collectives:data-uneven job.collectives:rank-busy job.collectives:fabric-stuck "
        "net.payload",
    ),
    _follows(
        "Some NCCL operations have failed or timed out",
        *("taking the entire process down", "we are taking the entire process"),
        "NCCL communicator was aborted on rank",
        means="torch ends the process after an earlier error or timeout of NCCL: that one counts",
        do="look for the first 'Watchdog caught' or 'NCCL WARN' of any rank",
        findings="job.collectives:collective-mismatch job.collectives:rank-stuck",
    ),
    _follows(
        *("Received a dump signal", "Observed flight recorder dump signal"),
        *("Received a global timeout from another rank", "Received a timeout signal from"),
        means="another rank has timed out or failed first: the line names it, its log says why",
        findings="job.collectives:collective-mismatch job.collectives:rank-stuck",
    ),
    _error(
        *("watchdog got stuck for", "Heartbeat monitor timed out"),
        "heartbeat monitor … Could not acquire GIL",
        means="the thread that watches NCCL made no progress: a CUDA call that does not return, "
        "a deadlock over Python's GIL, or a process that was not given a CPU",
        findings="job.collectives:gpu-stuck env.vars:heartbeat-short gpu.visible:driver-hangs",
        do="preflight attach PID while it hangs; TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC gives it longer",
    ),
    _error(
        *("Detected mismatch between collectives on ranks",),
        means="the ranks call different collectives, or with other shapes: the line has both",
        findings="job.collectives:collective-mismatch job.collectives:order-swapped",
    ),
    _error(
        *("op.preamble.length <= op.nbytes", "Received data size doesn't match expected size"),
        means="ranks called a collective with tensors of different sizes",
        findings="job.collectives:collective-mismatch job.collectives:order-swapped",
    ),
    _error(
        *("reached monitoredBarrier, but received errors",),
        *("failed to pass monitoredBarrier",),
        means="the rank that is named last did not come to the barrier: it is late, stuck or gone",
        findings="job.ranks:rank-late job.collectives:rank-stuck job.ranks:rank-raised",
    ),
    _error(
        *("Timed out waiting … for recv operation", "Timed out waiting … for send operation"),
        means="Gloo waited for another rank, which did not call the same collective in time, or "
        "whose packets are lost",
        findings="job.ranks:rank-late job.collectives:collective-mismatch "
        "job.collectives:rank-stuck net.payload:blackhole-node net.payload:blackhole-link",
    ),
    _follows(
        *("Application timeout caused pair closure",),
        means="this rank gave up a collective of Gloo before: the first timeout in its log counts",
        findings="job.ranks:rank-late job.collectives:collective-mismatch",
    ),
    _follows(
        *("Connection closed by peer", "Read error [", "Connection reset by peer ["),
        *("remote process exited or there was a network error", "ncclRemoteError"),
        "Connection closed by remote peer",
        means="another rank of this job has ended, or the connection to it broke: the first error "
        "in the other ranks' logs counts",
        findings="job.ranks:rank-raised job.ranks:rank-oom job.ranks:rank-killed "
        "job.ranks:rank-exited rdzv.reach:cut-off",
    ),
    _error(
        *("connectFullMesh failed … remote=[127.", "connectFullMesh failed … remote=[::1]"),
        means="a rank's own hostname leads to its loopback address, and it gave that to the others",
        findings="net.name:hostname-loopback net.name:hostname-unusable",
    ),
    _error(
        "connectFullMesh failed",
        means="the ranks did not reach each other at the addresses that their hostnames or "
        "GLOO_SOCKET_IFNAME lead to, on ports that the kernel chose",
        findings="net.mesh:ephemeral-closed net.name:hostname-loopback net.mesh:interface-wrong "
        "rdzv.store:gloo-unreachable job.ranks:rank-raised",
    ),
    _error(
        *("Unable to find address for", "unsupported gloo device", "ifa != nullptr"),
        means="GLOO_SOCKET_IFNAME names an interface that this node lacks, or that has no address",
        findings="net.interface:ifname-unmatched net.interface:gloo-syntax "
        "net.interface:interface-down",
    ),
    _error(
        *("Expected to have finished reduction in the prior iteration",),
        means="parameters got no gradient in this step, which DDP waits for",
        findings="job.model:gradients-unused",
    ),
    _error(
        "Expected to mark a variable ready only once",
        means="a parameter got its gradient twice in one backward pass: reentrant checkpointing, "
        "or one module used several times, with find_unused_parameters or without static_graph",
        do="checkpoint(..., use_reentrant=False); or DDP(..., static_graph=True)",
    ),
    _error(
        *("Your training graph has changed in this iteration",),
        means="DDP(static_graph=True) with a model that uses other parameters from step to step",
        do="leave static_graph out, or make the graph the same in each step",
    ),
    _error(
        "has inconsistent 0 params",
        means="the other rank took no part in DDP's comparison of the models: it failed before, or "
        "the first communication between the ranks does not work; seldom a model without "
        "parameters that need gradients",
        findings="job.ranks:rank-raised world.nccl:stuck gpu.p2p:copy-fails "
        "job.model:model-structure",
        do="read that rank's own log; export NCCL_P2P_DISABLE=1 to see whether the job then runs",
    ),
    _error(
        *("DDP expects same model across all ranks", "appears not to match … process 0"),
        means="the model differs between ranks in the number or shapes of its parameters",
        findings="job.model:model-structure job.model:order-differs",
    ),
    _error(
        "on global rank … which does not belong to the given group",
        means="this rank called a collective of a group that it is not in: the call did nothing",
        do="call it under `if rank in ranks`, and use what it returns on those ranks only",
    ),
    _error(
        *("pickle data was truncated", "invalid load key", "unpickling stack underflow"),
        means="what was to be an object is something else: object collectives that ranks call in "
        "different order, or a file that was cut off or is written by several ranks",
        findings="job.collectives:order-swapped job.collectives:collective-mismatch "
        "host.storage:full",
    ),
    _error(
        *("failed finding central directory", "unexpected EOF, expected"),
        means="a checkpoint that is not whole: a run that was killed while it wrote, a full disk, "
        "or several ranks that write the same file",
        findings="host.storage:full host.storage:checkpoint-not-shared",
        do="save on rank 0 only, to a temporary name that is renamed at the end",
    ),
    _harmless(
        "find_unused_parameters=True was specified in DDP constructor, but did not find",
        means="the option is not needed and costs a little time in each step",
    ),
    _harmless(
        "Grad strides do not match bucket view strides",
        means="gradients are copied once more than needed; only speed depends on it",
    ),
    _harmless(
        *("Reducer buckets have been rebuilt in this iteration",),
        means="DDP arranges its buckets once after the first step, as it always does",
    ),
    _harmless(
        *("device used by this process is currently unknown", "Guessing device ID based on"),
        "devices used by this process are currently unknown",
        "using the device under current context",
        means="torch guesses the GPU of this rank from its rank. Wrong guesses hang: two ranks "
        "then use the same GPU",
        findings="job.script:set-device-missing",
        do="torch.cuda.set_device(local_rank), or init_process_group(device_id=…)",
    ),
    _harmless(
        "destroy_process_group() was not called",
        means="the script ends without destroy_process_group(); what ended it stands before",
        findings="job.script:destroy-missing",
    ),
)

NCCL = (
    _error(
        "collective mismatch error, local size",
        means="the two ends of a connection call collectives of another size: the ranks call "
        "different ones, in another order, or NCCL cuts them differently by its settings or by "
        "its version",
        findings="job.collectives:collective-mismatch job.collectives:order-swapped "
        "agree.env:setting-differs agree.software:nccl-differs",
    ),
    _error(
        *("have different … operation counts", "ranks have launched up to operation"),
        means="NCCL's RAS: some ranks have called a collective once more than others. For a moment "
        "that is normal; where it stays so, those that called fewer are the ones to look at",
        findings="job.collectives:rank-stuck job.collectives:rank-busy "
        "job.collectives:collective-mismatch",
        do="preflight attach PID on a node of a rank that has called fewer",
    ),
    _error(
        *("NET/OFI … UNDELIVERABLE", "NET/OFI … RC: 113"),
        means="libfabric could not deliver to the other node's network card: that card, its driver "
        "or its permission for the fabric (EFA, Slingshot's VNI), or a peer that has ended",
        findings="net.rdma:port-down agree.env:setting-differs job.ranks:rank-raised",
        do="fi_info on both nodes, and fi_pingpong between them",
    ),
    _error(
        *("Duplicate GPU detected", "Multiple Ranks are using the same GPU"),
        means="two ranks have chosen the same GPU",
        findings="agree.env:gpu-shared job.script:set-device-missing gpu.visible:too-few-gpus "
        "env.identity:local-rank-differs agree.hardware:host-duplicate",
    ),
    _error(
        *("ncclInvalidUsage", "NCCL error … invalid usage"),
        means="NCCL refuses how it is used, mostly since two ranks have the same GPU; its 'NCCL "
        "WARN' line says what",
        findings="agree.env:gpu-shared gpu.visible:too-few-gpus world.nccl:version-mismatch",
        do="export NCCL_DEBUG=WARN and read the line before this one",
    ),
    _error(
        *("ncclSystemError", "unhandled system error"),
        means="a call of the operating system failed in NCCL: a socket, shared memory or locked "
        "memory; its 'NCCL WARN' line says which",
        findings="world.nccl:shm-full host.limits:memlock-low net.interface world.nccl:nccl-failed",
        do="export NCCL_DEBUG=WARN and read the line before this one",
    ),
    _error(
        *("ncclUnhandledCudaError", "unhandled cuda error"),
        means="a CUDA call failed in NCCL: no memory left on the GPU, peer access, a driver that "
        "does not fit; its 'NCCL WARN' line says which",
        findings="world.nccl:gpu-full world.nccl:cuda-failed gpu.p2p:copy-fails "
        "world.nccl:nvls-failed",
        do="export NCCL_DEBUG=WARN and read the line before this one",
    ),
    _error(
        *("ncclInternalError", "NCCL error … internal error"),
        means="NCCL found itself in a state that it does not expect: mostly ranks with other "
        "settings, versions or GPUs, or a connection that broke while it was set up",
        findings="agree.env:setting-differs agree.software:nccl-differs world.nccl:nccl-failed",
        do="export NCCL_DEBUG=WARN and read the line before this one",
    ),
    _error(
        *("no socket interface found", "ncclSocketInit: connecting to address … with family"),
        means="NCCL_SOCKET_IFNAME names no interface of this node",
        findings="net.interface:ifname-unmatched world.nccl:interface-unknown "
        "net.interface:interface-down",
    ),
    _error(
        *("Connect to 172.17.", "Connect to 172.18.", "Connect to 192.168.122."),
        means="a node gave the others the address of a bridge for containers or virtual machines, "
        "which leads nowhere from outside",
        findings="net.interface:interface-isolated net.mesh:interface-wrong",
        do="export NCCL_SOCKET_IFNAME=NAME of the interface that all nodes share",
    ),
    _error(
        *("NCCL WARN … Connect to … failed", "Call to connect returned", "Connect to fe80"),
        *("socketPollConnect … Connection refused", "socketStartConnect: exceeded retries"),
        means="a rank did not reach another one at the address that NCCL chose: the wrong "
        "interface, closed ports, or a rank that has died",
        findings="net.mesh:interface-wrong net.mesh:ephemeral-closed net.interface "
        "job.ranks:rank-raised",
    ),
    _error(
        *("Got completion … with error 12", "Got completion … with status=12"),
        *("IBV_WC_RETRY_EXC_ERR", "transport retry counter exceeded"),
        means="InfiniBand or RoCE sent again and again without an answer: a bad or flapping link, "
        "a GID or partition that does not fit, a congested fabric, or a peer that has died",
        findings="net.rdma:errors-growing net.rdma:link-flapped net.rdma:gid-unusable "
        "net.rdma:port-down net.rdma:subnets-differ job.ranks:rank-killed",
    ),
    _error(
        *("Got completion … with error 4", "Got completion … with status=4"),
        "IBV_WC_LOC_PROT_ERR",
        means="an HCA could not read or write the memory of a GPU: most often ACS or an IOMMU is "
        "in the way of GPUDirect RDMA; with NCCL_NET_GDR_LEVEL=LOC it works then, but slower",
        findings="net.rdma:gpudirect-acs net.rdma:gpudirect-iommu",
    ),
    _follows(
        *("Got completion … with error 5", "Got completion … with status=5"),
        "IBV_WC_WR_FLUSH_ERR",
        means="a connection of InfiniBand was closed after an earlier error: that one counts",
        findings="net.rdma:errors-growing job.ranks:rank-killed",
    ),
    _error(
        *("ibv_reg_mr … Cannot allocate memory", "ibv_create_cq … Cannot allocate memory"),
        *("ibv_create_qp … Cannot allocate memory", "ibv_reg_mr failed", "ibv_create_cq failed"),
        means="memory can't be locked for InfiniBand: the limit for locked memory is too low",
        findings="host.limits:memlock-low host.limits:memlock-container",
    ),
    _error(
        *("ibv_reg_mr … Bad address", "ibv_reg_mr_iova2 failed with error Bad address"),
        means="a GPU's memory can't be registered with the HCA: GPUDirect is not set up here",
        findings="net.rdma:gpudirect-missing world.nccl:gdr-off",
    ),
    _error(
        *("ibv_modify_qp failed … timed out", "ibv_modify_qp failed … Connection timed out"),
        *("ibv_modify_qp failed … Network is unreachable", "ibv_modify_qp failed … No route"),
        means="the way to the other HCA does not exist: mostly a GID of the wrong kind or network",
        findings="net.rdma:gid-unusable net.rdma:subnets-differ net.rdma:port-down",
    ),
    _harmless(
        *("Could not find: libnccl-net", "libnccl-net.so: cannot open shared object"),
        *("Plugin Load : … not found", "Could not find: none libnccl", "No plugin found"),
        means="there is no network plugin for NCCL, and none is needed: it uses its own networks",
        findings="env.vars:plugin-absent",
    ),
    _harmless(
        *("NET/IB : No device found", "Using network Socket"),
        means="NCCL has found no InfiniBand or RoCE and goes over sockets: right on one machine, "
        "or where there is none",
        findings="world.nccl:sockets-chosen host.limits:rdma-not-exposed net.rdma:hca-unmatched",
    ),
    _harmless(
        "GPU Direct RDMA Disabled for HCA",
        means="what goes over this HCA is copied through the host's memory: slower, no error",
        findings="net.rdma:gpudirect-missing world.nccl:gdr-off",
    ),
    _harmless(
        *("couldn't open config directory '/etc/libibverbs.d'", "Failed to open libibverbs.so"),
        means="this system or container has no InfiniBand libraries: NCCL goes over sockets, which "
        "is a fault only where the nodes have InfiniBand or RoCE",
        findings="host.limits:rdma-not-exposed world.nccl:sockets-chosen",
    ),
    _error(
        "no algorithm/protocol available for function",
        "no algorithm/protocol nor symKernelId available for function",
        means="NCCL_ALGO or NCCL_PROTO leaves this collective without an algorithm: NCCL 2.24 and "
        "later do not fall back to Ring",
        findings="env.vars:algorithm-unavailable",
        do="unset NCCL_ALGO NCCL_PROTO to see whether the job then runs",
    ),
    _error(
        *("peer access is not supported between these two devices",),
        means="these GPUs can't copy to each other, though a setting or the driver says so",
        findings="gpu.links:p2p-unsupported gpu.links:p2p-misreported gpu.p2p:copy-fails",
        do="export NCCL_P2P_DISABLE=1 to see whether the job then runs",
    ),
    _error(
        *("creating shared memory segment", "failed to extend /dev/shm/nccl"),
        *("unable to allocate shared memory(shm)", "insufficient shared memory (shm)"),
        *("killed by signal: Bus error", "Bus error (core dumped)", "exitcode: -7", "SIGBUS"),
        "exitcode  : -7",
        means="/dev/shm is full or too small: a container has 64 MiB by default",
        findings="host.limits:shm-small host.limits:shm-full world.loader:shm-full "
        "world.nccl:shm-full",
        do="docker run --shm-size=16g or --ipc=host; a memory-backed emptyDir in Kubernetes",
    ),
    _error(
        *("Failed to find reverse path from remNode", "Could not find a path for pattern"),
        *("Failed to find … path from", "No NVLink path found"),
        means="NCCL can't make sense of the machine's topology: a virtual machine, a container "
        "that shows a part of the devices, or a topology file of another machine",
        findings="env.vars:file-missing env.vars:file-malformed world.nccl:nccl-failed",
        do="unset NCCL_TOPO_FILE, or set it to the file for this kind of machine; a newer NCCL",
    ),
    _error(
        *("Message truncated : received", "message truncated : receiving"),
        means="ranks send other amounts than the others expect: collectives or sizes that differ, "
        "or NCCL settings or versions that do",
        findings="job.collectives:collective-mismatch agree.env:setting-differs "
        "agree.software:nccl-differs job.backend:setting-differs",
    ),
    _error(
        *("No transport found for rank",),
        means="NCCL may use nothing that joins two ranks: variables that switch P2P, shared memory "
        "or the network off, or containers that share none of them",
        findings="env.vars:fast-path-off world.nccl:network-missing world.nccl:nccl-failed",
    ),
    _error(
        *("NCCL WARN Cuda failure … 'out of memory'", "NCCL WARN Cuda failure 'out of memory'"),
        *("Failed to CUDA calloc",),
        means="no memory is left on the GPU for NCCL's own buffers",
        findings="world.nccl:gpu-full job.ranks:rank-gpu-oom gpu.health:gpu-busy",
    ),
    _error(
        *("NCCL WARN Cuda failure … 'operation not supported'",),
        *("Failed to bind NVLink SHARP", "NVLS … multicast", "nvls.cc … NCCL WARN Cuda failure"),
        means="NCCL's use of NVLink SHARP or of memory handles fails with this driver or "
        "container, often after the fabric manager was restarted while GPUs were in use",
        findings="world.nccl:nvls-failed gpu.health:fabric-down",
        do="export NCCL_NVLS_ENABLE=0 (or NCCL_CUMEM_ENABLE=0) to see whether the job then runs",
    ),
)

GPUS = (
    _error(
        *("Unable to determine the device handle for GPU",),
        means="the GPU no longer answers the driver: lost on the bus, or in need of a reset",
        findings="gpu.visible:gpu-lost gpu.visible:gpu-error gpu.health:gpu-lost",
    ),
    _error(
        *("PCIe Bus Error: severity=Uncorrected", "AER: Uncorrected", "AER: Multiple Uncorrected"),
        means="errors on the PCIe link of a device that were not corrected: the card, its slot or "
        "its power",
        findings="gpu.health:pcie-errors net.rdma:hca-dead gpu.visible:gpu-lost",
    ),
    _harmless(
        *("PCIe Bus Error: severity=Corrected", "AER: Corrected", "AER: Multiple Corrected"),
        means="errors on a PCIe link that were corrected: many of them slow it down, and may "
        "announce a card that is lost later",
        findings="gpu.health:pcie-errors",
    ),
    _error(
        *("CUDA out of memory", "CUDA error: out of memory", "HIP out of memory"),
        *("CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED"),
        "CUDNN_STATUS_NOT_INITIALIZED",
        means="no memory is left on this GPU: the job's own, another process's, or that of ranks "
        "that all use the same GPU",
        findings="job.ranks:rank-gpu-oom gpu.health:gpu-busy agree.env:gpu-shared "
        "job.balance:gpu-memory-uneven job.memory:gpu-memory-growth",
    ),
    _error(
        *("invalid device ordinal", "Invalid device id"),
        means="a rank chose a GPU number that it does not have: more ranks than GPUs, a launcher "
        "that shows each rank one GPU as number 0, or the global rank used as the GPU's number",
        findings="gpu.visible:too-few-gpus gpu.visible:mask-per-task "
        "env.identity:local-size-differs gpu.visible:gpu-count",
    ),
    _error(
        "all CUDA-capable devices are busy or unavailable",
        means="the GPU is in exclusive mode and taken, or the driver does not give it out",
        findings="gpu.visible:compute-mode gpu.health:gpu-busy gpu.visible:mps-daemon-gone",
    ),
    _error(
        *("no CUDA-capable device is detected", "No CUDA GPUs are available"),
        means="CUDA sees no GPU: a mask that hides all, a container without GPUs, no driver",
        findings="gpu.visible:mask-empty gpu.visible:gpus-not-exposed gpu.visible:mask-invalid "
        "gpu.visible:driver-missing gpu.visible:cuda-not-exposed",
    ),
    _error(
        *("Found no NVIDIA driver on your system",),
        means="torch finds no libcuda: no driver on this node, or a container without its GPUs",
        findings="gpu.visible:driver-missing gpu.visible:gpus-not-exposed "
        "gpu.visible:cuda-not-exposed",
    ),
    _error(
        *("CUDA driver version is insufficient", "NVIDIA driver on your system is too old"),
        means="the node's driver is older than the CUDA that torch was built for",
        findings="host.software:driver-too-old gpu.visible:compat-misplaced",
    ),
    _error(
        *("unsupported display driver / cuda driver combination",),
        *("forward compatibility was attempted on non supported HW",),
        means="another libcuda than the kernel module's: a cuda-compat folder in the image, or a "
        "driver update without a reboot",
        findings="gpu.visible:compat-misplaced gpu.visible:driver-mismatch",
    ),
    _error(
        "Failed to initialize NVML: Driver/library version mismatch",
        means="the driver's libraries were updated, and the kernel module is still the old one",
        findings="gpu.visible:driver-mismatch",
        do="reboot the node, or unload and load the nvidia modules while nothing uses them",
    ),
    _error(
        "Failed to initialize NVML: Unknown Error",
        means="mostly a container that has lost its GPUs, since systemd was reloaded on the host; "
        "there nvidia-smi works",
        findings="gpu.visible:no-access",
        do="start the container again; --device /dev/nvidia0 … or CDI keep the GPUs in the future",
    ),
    _error(
        *("could not select device driver … gpu", "unknown or invalid runtime name: nvidia"),
        means="docker knows no GPUs: NVIDIA's container toolkit is not installed or set up",
        do="install nvidia-container-toolkit; nvidia-ctk runtime configure --runtime=docker",
    ),
    _error(
        "system not yet initialized",
        means="the NVSwitches are not set up: the fabric manager does not run, or its version is "
        "not the driver's",
        findings="gpu.health:fabric-down gpu.health:nvlink-domain-down",
    ),
    _error(
        *("CUDA unknown error - this may be due to", "cudaGetDeviceCount(). Error 999"),
        means="CUDA could not be initialised: the module nvidia_uvm is missing, or the driver is "
        "in a bad state (after a suspend, an update or a lost GPU)",
        findings="gpu.visible:uvm-missing gpu.visible:driver-mismatch gpu.visible:gpu-lost",
    ),
    _error(
        *("illegal memory access was encountered", "unspecified launch failure"),
        "CUBLAS_STATUS_EXECUTION_FAILED",
        means="a kernel failed, at some call before this one: mostly a bug of a kernel or an index "
        "out of range, seldom the GPU",
        findings="job.ranks:rank-cuda-error gpu.compute gpu.health:xid",
        do="run again with CUDA_LAUNCH_BLOCKING=1: then the line is the right one",
    ),
    _error(
        "device-side assert triggered",
        means="an index or a label is out of range, at some call before this one",
        findings="job.ranks:rank-cuda-error",
        do="run again with CUDA_LAUNCH_BLOCKING=1: then the line is the right one",
    ),
    _error(
        "uncorrectable ECC error encountered",
        means="the GPU's memory failed: the node's hardware, not the script",
        findings="gpu.health:memory-errors gpu.health:rows-exhausted gpu.health:remap-pending "
        "job.ranks:rank-cuda-error",
    ),
    _error(
        *("fallen off the bus", "GPU is lost", "Xid (PCI:…): 79,"),
        means="the GPU no longer answers on the bus: power, heat, a loose card or the GPU itself",
        findings="gpu.visible:gpu-lost gpu.health:gpu-lost",
    ),
    _error(
        *("Xid (PCI:…): 13,", "Xid (PCI:…): 31,"),
        means="a kernel of the program touched memory that it may not: mostly a bug of that "
        "kernel, seldom the GPU",
        findings="job.ranks:rank-cuda-error gpu.health:xid",
    ),
    _follows(
        *("Xid (PCI:…): 43,", "Xid (PCI:…): 45,"),
        means="the driver ended what a program had on the GPU, since it failed or was killed",
        findings="job.ranks:rank-cuda-error job.ranks:rank-killed gpu.health:xid",
    ),
    _error(
        *("Xid (PCI:…): 48,", "Xid (PCI:…): 63,", "Xid (PCI:…): 64,", "Xid (PCI:…): 94,"),
        "Xid (PCI:…): 95,",
        means="an error of the GPU's memory that could not be corrected",
        findings="gpu.health:memory-errors gpu.health:remap-pending gpu.health:rows-exhausted "
        "gpu.health:xid",
    ),
    _error(
        "Xid (PCI:…): 74,",
        means="an error of an NVLink of this GPU",
        findings="gpu.health:nvlink-errors gpu.links:nvlink-down gpu.health:xid",
    ),
    _error(
        *("Xid (PCI:…): 119,", "Xid (PCI:…): 120,"),
        means="the firmware on the GPU (GSP) does not answer the driver: the GPU needs a reset",
        findings="gpu.health:xid gpu.visible:gpu-error gpu.visible:driver-hangs",
    ),
    _error(
        *("no kernel image is available", "is not compatible with the current PyTorch"),
        means="this build of torch has no kernels for this GPU",
        findings="host.software:arch-missing job.warnings:gpu-unsupported",
    ),
    _error(
        *("Torch not compiled with CUDA enabled", "have NCCL built in"),
        *("only supported with GPUs, no GPUs found",),
        means="a torch for the CPU, or a node or container where torch sees no GPU",
        findings="host.software:cpu-build host.software:no-backend job.script:nccl-on-cpu "
        "agree.hardware:gpu-absent gpu.visible:mask-empty",
    ),
    _error(
        "Cannot re-initialize CUDA in forked subprocess",
        means="a process that had used CUDA was forked, and the child uses it as well",
        do="use the start method 'spawn' (DataLoader(multiprocessing_context='spawn')), or keep "
        "CUDA out of the dataset and out of what runs before the fork",
    ),
    _error(
        *("libcudnn … cannot open shared object", "libcudart … cannot open shared object"),
        *("libnccl.so.2: cannot open shared object", "Unable to load any of {libcudnn"),
        *("Could not load library libcudnn", "libcublas … cannot open shared object"),
        means="torch's CUDA libraries are not all there, or LD_LIBRARY_PATH leads to others",
        findings="host.software:torch-broken host.software:two-nccl",
    ),
    _error(
        *("undefined symbol: nccl",),
        means="another libnccl than torch's own was loaded",
        findings="host.software:two-nccl host.software:nccl-too-old",
    ),
    _error(
        "Expected all tensors to be on the same device",
        means="a tensor was left on the CPU, or on GPU 0 instead of the rank's own",
        findings="job.script:batch-not-moved job.script:set-device-missing",
    ),
    _error(
        "NCCL does not support all_reduce with sparse tensors",
        means="a model in DDP has a layer with sparse gradients (nn.Embedding with sparse=True), "
        "which Gloo can sum and NCCL can not",
        do="pass sparse=False to that nn.Embedding, or keep a large table out of DDP, its rows "
        "divided over the ranks",
    ),
    _error(
        "No backend type associated with device type cpu",
        means="a collective over NCCL was given a tensor on the CPU",
        findings="job.backend:device-uncarried world.ddp:backend-mismatch",
    ),
    _error(
        "NVRM: Xid (PCI:",
        means="the driver logged an error of this GPU; NVIDIA's list of Xid errors says which one "
        "the number is",
        findings="gpu.health:xid",
    ),
)

PROCESSES = (
    _error(
        *("pyxis: container start failed", "pyxis: couldn't start container"),
        *("enroot-switchroot: failed to execute", "enroot: failed to"),
        means="the container did not start on that node: what pyxis prints of its log says why, "
        "such as an image without a shell or one that was not imported whole",
        do="srun --container-image=IMAGE --no-container-entrypoint true; enroot list; df -h "
        "$ENROOT_DATA_PATH",
    ),
    _error(
        "Job credential expired",
        means="SLURM's word that it may start the step came too late or from another time: the "
        "clock of that node is off, or slurmd took minutes to get to it",
        findings="agree.clock:clock-skew-large agree.clock:clock-skew rdzv.reach:not-launched",
        do="timedatectl on that node; chronyc tracking; munge -n | unmunge from there",
    ),
    _error(
        *("slurm_receive_msgs: … Socket timed out", "failed on node … Socket timed out"),
        means="slurmd of that node did not answer: what srun says of further nodes, which it "
        "reaches through that one, follows from it",
        findings="rdzv.reach:not-launched",
        do="scontrol show node NODE; systemctl status slurmd munge on it",
    ),
    _error(
        *("not built with SLURM's PMI support", "PMI2_Init failed"),
        means="srun gives this MPI no PMI that it knows, so that each task is alone",
        findings="env.identity:launchers-nested",
        do="srun --mpi=list; srun --mpi=pmix; or mpirun in the allocation",
    ),
    _error(
        *("Open MPI failed to TCP connect to a peer", "Message:    connect() to … failed"),
        means="Open MPI connects to an address of the other node that does not lead there, of an "
        "interface for something else (169.254…: link-local, 172.17…: docker)",
        findings="net.interface:interface-isolated net.mesh:interface-wrong",
        do="mpirun --mca btl_tcp_if_include NETWORK/BITS --mca oob_tcp_if_include NETWORK/BITS",
    ),
    _follows(
        "MPI communication peer process has unexpectedly disconnected",
        means="the process on the node that is named as peer host has ended: the first error in "
        "its own output counts",
        findings="job.ranks:rank-raised job.ranks:rank-killed job.ranks:rank-oom",
    ),
    _error(
        *("low on resource: ephemeral-storage", "Pod ephemeral local storage usage exceeds"),
        *("Usage of EmptyDir volume … exceeds",),
        means="Kubernetes evicted the pod: the node's disk is full, by this pod or by others",
        findings="host.storage:full",
        do="write to a volume of its own; set resources.limits.ephemeral-storage",
    ),
    _error(
        *("429 Client Error: Too Many Requests", "429 Too Many Requests"),
        means="a server limits how often it is asked, and every rank downloads by itself",
        do="download on one rank of each node first, then HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1",
    ),
    _error(
        *("Signal 9 (SIGKILL) received by PID", "exitcode: -9", "exitcode  : -9"),
        *("exit code -9", "exit status 137", "exit code 137", "oom_kill event"),
        *("oom-kill event", "task … Out Of Memory", "oom-killer", "Out of memory: Killed process"),
        *(
            "OOMKilled",
            "killed due to memory pressure",
            "ray-oom-prevention",
            "running low on memory",
        ),
        means="the kernel killed the rank, nearly always since the host's memory (not the GPU's) "
        "was used up, of the machine or of the job's cgroup",
        findings="job.ranks:rank-oom host.limits:memory-low job.memory:memory-growth "
        "host.cpu:loader-many",
        do="dmesg -T | grep -i -e oom -e killed",
    ),
    _error(
        *("killed by signal: Killed",),
        means="the kernel killed a worker of the DataLoader, mostly since memory was used up",
        findings="world.loader:worker-died job.ranks:rank-oom job.memory:memory-growth "
        "host.cpu:loader-many",
    ),
    _error(
        *("DataLoader worker … exited unexpectedly", "killed by signal: Segmentation"),
        *("killed by signal: Aborted",),
        means="a worker of the DataLoader died: memory, /dev/shm, or a library that does not "
        "survive a fork",
        findings="world.loader:worker-died host.limits:shm-small job.ranks:rank-oom",
        do="num_workers=0 shows the worker's own error",
    ),
    _error(
        *("exitcode: -11", "exitcode  : -11", "SIGSEGV", "Segmentation fault"),
        *("exitcode: -4", "exitcode  : -4", "SIGILL"),
        means="a crash in native code: a library that does not fit torch, an extension, seldom "
        "hardware",
        findings="job.ranks:rank-killed host.software:torch-broken",
        do="python -X faulthandler shows the line",
    ),
    _follows(
        *("exitcode: -6", "exitcode  : -6", "SIGABRT", "terminate called after throwing"),
        means="torch or NCCL ended the rank itself (abort): the reason stands in its last lines "
        "before this one, mostly a timeout or an error of NCCL",
        findings="job.collectives:collective-mismatch job.ranks:rank-killed",
    ),
    _error(
        *("closing signal SIGHUP", "Received 1 death signal"),
        means="torchrun was sent SIGHUP: the terminal or the ssh session closed. nohup does not "
        "help, since torchrun takes the signal itself",
        do="start it in tmux or screen, with setsid, or as a batch job",
    ),
    _follows(
        *(
            "Signal 15 (SIGTERM) received",
            "Received 15 death signal",
            "closing signal SIGTERM",
            "exitcode: -15",
        ),
        *("exitcode  : -15", "torch.distributed.elastic … SignalException"),
        means="the launcher or the scheduler ended this rank: another one had failed, or the job "
        "was cancelled, preempted or out of time",
        findings="job.ranks:rank-raised job.collectives:exit-stuck",
    ),
    _follows(
        *("ChildFailedError", "Root Cause (first observed failure)", "Exited with exit code"),
        *("To enable traceback see", "exitcode  : 1"),
        means="the launcher says that a rank failed: the traceback of that rank stands further up, "
        "in its own output",
        findings="job.ranks:rank-raised job.ranks:rank-exited",
        do="torchrun --log-dir logs --redirects 3 keeps each rank's output in a file",
    ),
    _error(
        *("Too many open files", "received 0 items of ancdata"),
        means="the limit of open files is used up, mostly by tensors that DataLoader workers share",
        findings="host.limits:nofile-low world.loader:files-few rdzv.reach:open-files-exhausted",
        do="ulimit -n 65536; or torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    _error(
        *("can't start new thread", "Thread creation failed", "pthread_create failed"),
        *("fork … Resource temporarily unavailable", "thread … Resource temporarily unavailable"),
        "[Errno 11] Resource temporarily unavailable",
        means="the limit of processes and threads is used up",
        findings="host.limits:threads-low host.limits:fork-refused host.cpu:omp-many "
        "host.cpu:loader-many",
    ),
    _error(
        "DataLoader timed out after",
        means="a worker of the DataLoader gave no batch in time: it hangs, or its storage does",
        findings="world.loader:worker-hung host.storage:stalled job.collectives:loader-stuck",
    ),
    _error(
        *("DUE TO TIME LIMIT",),
        means="the job ran until its time limit: too short, or it hung before",
        findings="job.collectives job.pace",
    ),
    _harmless(
        *("DUE TO PREEMPTION", "CANCELLED AT … DUE TO PREEMPTION"),
        means="a job with a higher priority took the nodes",
    ),
    _error(
        *("Unable to create step for job … More processors requested",),
        means="this srun asks for more than the job has, or than its other steps have left",
        do="add --overlap to an inner srun, and --cpus-per-task as in the job",
    ),
    _harmless(
        *("step creation temporarily disabled", "Requested nodes are busy"),
        means="srun waits until another step of this job gives its CPUs or GPUs back. Where that "
        "step is the one in which this srun was started, it waits forever",
        do="add --overlap to an inner srun",
    ),
    _error(
        *("No space left on device", "Disk quota exceeded", "PytorchStreamWriter failed writing"),
        "inline_container.cc … unexpected pos",
        means="a file system, its quota or /dev/shm is full",
        findings="host.storage:full host.limits:shm-full job.memory:shm-growth",
    ),
    _error(
        *("Stale file handle", "Transport endpoint is not connected", "Input/output error"),
        means="the mount is broken (its server is gone, or an export was made again), or another "
        "process has removed the file meanwhile",
        findings="host.storage:mount-broken host.storage:stalled",
    ),
    _error(
        *("unrecognized arguments: --local-rank", "unrecognized arguments: --local_rank"),
        means="torch.distributed.launch passes --local-rank, which the script does not know",
        do="start it with torchrun and read os.environ['LOCAL_RANK']",
    ),
    _error(
        *("file_baton.py … in wait",),
        means="a process waits until another one has built a C++ or CUDA extension; where that was "
        "killed, its lock file stays, and it waits forever",
        findings="host.storage:build-lock-stale job.collectives:extension-locked",
        do="end all that build it, and remove the file 'lock' in ~/.cache/torch_extensions",
    ),
    _harmless(
        "leaked semaphore objects to clean up at shutdown",
        means="said when processes end without cleaning up; what ended them stands before",
    ),
    _harmless(
        "current process just got forked, after parallelism has already been used",
        means="Hugging Face's tokenizers use one thread in the workers of a DataLoader",
        do="export TOKENIZERS_PARALLELISM=false",
    ),
    _harmless(
        *("Setting OMP_NUM_THREADS environment variable for each process to be 1",),
        means="torchrun gives each rank one OpenMP thread, where nothing is set",
        findings="host.cpu:omp-bound",
    ),
    _harmless(
        *("torch.distributed.launch is deprecated", "launch.py … deprecated"),
        means="torchrun is its new name; nothing fails for it",
    ),
    _harmless(
        "is deprecated; use TORCH_",
        means="the variable has a new name; torch reads the old one as well",
        findings="env.vars:name-deprecated",
    ),
)

GENERAL = (
    _follows(
        *("Connection reset by peer", "Broken pipe"),
        means="the process at the other end of a connection has ended or closed it: the first "
        "error in its log counts",
        findings="job.ranks:rank-raised job.ranks:rank-killed rdzv.reach:lost "
        "net.port:listen-queue-short net.port:conntrack-idle",
    ),
)

UNKNOWN_EXCEPTION = Message(
    words=("Traceback (most recent call last)",),
    means="an uncaught exception of the script or of a library: its traceback stands right above",
    findings=("job.ranks:rank-raised",),
)
"""For the last line of a traceback, where no message matches it."""

MESSAGES = (*RENDEZVOUS, *COLLECTIVES, *NCCL, *GPUS, *PROCESSES, *GENERAL)
