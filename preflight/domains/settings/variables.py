"""The environment variables of NCCL, torch.distributed, torchrun and Gloo, and near misses of them.

Names and ranges after NCCL's user guide and source (2.18 to 2.30), torch's source and binaries (2.4
to 2.14). The tables are parsed when first asked for; what a kind of value means is in readers.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import NamedTuple

# `NAME kind argument…`, the names without NCCL_. An int's arguments are its least and greatest
# documented value, - for none.
NCCL = """
SOCKET_IFNAME interfaces
SOCKET_FAMILY word AF_INET AF_INET6
SOCKET_MAGIC int - -
SOCKET_RETRY_CNT int 0 -
SOCKET_RETRY_SLEEP_MSEC int 0 -
SOCKET_POLL_TIMEOUT_MSEC int 0 -
SOCKET_NTHREADS int 0 16
NSOCKS_PERTHREAD int 0 64
CROSS_NIC int 0 2
IB_HCA interfaces
IB_TIMEOUT int 1 31
IB_RETRY_CNT int 0 7
IB_GID_INDEX int 0 -
IB_ADDR_FAMILY word AF_INET AF_INET6
IB_ADDR_RANGE text
IB_ROCE_VERSION_NUM int 1 2
IB_SL int 0 15
IB_TC int 0 255
IB_FIFO_TC int 0 255
IB_RETURN_ASYNC_EVENTS flag
OOB_NET_ENABLE flag
OOB_NET_IFNAME interfaces
UID_STAGGER_THRESHOLD int 1 -
UID_STAGGER_RATE int 1 -
NET text
NET_PLUGIN text
TUNER_PLUGIN text
PROFILER_PLUGIN text
ENV_PLUGIN text
IGNORE_CPU_AFFINITY flag
CONF_FILE text
DEBUG debug
DEBUG_FILE text
DEBUG_SUBSYS subsystems
DEBUG_TIMESTAMP_FORMAT any
DEBUG_TIMESTAMP_LEVELS text
COLLNET_ENABLE flag
COLLNET_NODE_THRESHOLD int 0 -
CTA_POLICY text
NETDEVS_POLICY text
MULTI_RANK_GPU_ENABLE flag
TOPO_FILE text
TOPO_DUMP_FILE text
SET_THREAD_NAME flag
P2P_DISABLE flag
P2P_LEVEL level
P2P_DIRECT_DISABLE flag
SHM_DISABLE flag
BUFFSIZE int 4096 -
NTHREADS int 32 1024
MAX_NCHANNELS int 1 -
MIN_NCHANNELS int 1 -
CHECKS_DISABLE flag
CHECK_POINTERS flag
CHECK_MODE text
LAUNCH_MODE text
IB_DISABLE flag
IB_AR_THRESHOLD int 0 -
IB_OOO_RQ flag
IB_QPS_PER_CONNECTION int 1 128
IB_SPLIT_DATA_ON_QPS flag
IB_PCI_RELAXED_ORDERING int 0 2
IB_ADAPTIVE_ROUTING flag
IB_ECE_ENABLE flag
MEM_SYNC_DOMAIN int 0 1
CUMEM_ENABLE flag
CUMEM_HOST_ENABLE flag
NET_GDR_LEVEL level
NET_GDR_C2C flag
NET_GDR_READ flag
NET_SHARED_BUFFERS flag
NET_SHARED_COMMS flag
IGNORE_NET_MISMATCH flag
IGNORE_COLLNET_MISMATCH flag
ALGO algorithms
PROTO protocols
NVB_DISABLE flag
PXN_DISABLE flag
P2P_PXN_LEVEL int 0 2
PXN_C2C flag
RUNTIME_CONNECT flag
GRAPH_REGISTER flag
LOCAL_REGISTER flag
LEGACY_CUDA_REGISTER flag
WIN_ENABLE flag
SET_STACK_SIZE flag
GRAPH_MIXING_SUPPORT flag
GRAPH_STREAM_ORDERING flag
DMABUF_ENABLE flag
P2P_NET_CHUNKSIZE int 1 -
P2P_LL_THRESHOLD int 0 -
ALLOC_P2P_NET_LL_BUFFERS flag
COMM_BLOCKING flag
CGA_CLUSTER_SIZE int 0 8
MAX_CTAS int 1 64
MIN_CTAS int 1 64
NVLS_ENABLE int 0 2
IB_MERGE_NICS flag
NET_MERGE_POLICY text
MNNVL_ENABLE int 0 2
MNNVL_UUID int - -
MNNVL_CLIQUE_ID int - -
RAS_ENABLE flag
RAS_ADDR text
RAS_TIMEOUT_FACTOR int 0 -
LAUNCH_ORDER_IMPLICIT flag
LAUNCH_RACE_FATAL flag
IPC_USE_ABSTRACT_SOCKET flag
SYM_GIN_KERNELS_ENABLE flag
"""

# Read by some NCCL from 2.18 on, or by its own example plug-ins, but in no guide: nothing is said
# of their values. Names without NCCL_.
NCCL_UNDOCUMENTED = """
AGG_CHANNEL_SIZE ALLGATHERV_ENABLE CHUNK_SIZE COMM_ID COMM_SHRINK_SHARE_RESOURCES
COMM_SPLIT_SHARE_RESOURCES CONNECT_ROUND_MAX_PEERS CREATE_THREAD_CONTEXT CUDA_PATH DEV_API_JIT
DISABLE_MEM_MANAGER ELASTIC_BUFFER_REGISTER ENABLE_VERSION_CHECK GDAKI_USE_RELIABLE_DB
GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE GDRCOPY_FLUSH_ENABLE GDRCOPY_SYNC_ENABLE GDR_FLUSH_DISABLE
GIN_COUNTER_POOL_SIZE GIN_ENABLE GIN_ERROR_QUERY_SEC GIN_EXCLUSIVE_CONTEXTS
GIN_GDAKI_MAX_DEST_RD_ATOMIC GIN_GDAKI_MAX_QP_RD_ATOMIC GIN_GDAKI_NIC_HANDLER GIN_GDAKI_QP_DEPTH
GIN_IB_TC GIN_NCONNECTIONS GIN_NCONTEXTS GIN_PLUGIN GIN_PLUGIN_REF_COUNT GIN_PROXY_QUEUE_SIZE
GIN_SIGNAL_POOL_SIZE GIN_TYPE GRAPH_DUMP_FILE GRAPH_DUMP_FILE_RANK GRAPH_FILE GRAPH_HELPER_DISABLE
GROUP_CUDA_STREAM HOSTID IBVERBS_LIB IB_DATA_DIRECT IB_DEVICE_PCI_ORDER IB_MERGE_VFS
IB_MQP_RETRY_ALL IB_MQP_RETRY_CNT IB_MQP_RETRY_SLEEP_MSEC IB_PKEY IB_PREPOST_RECEIVE_WORK_REQUESTS
IB_QUERY_PORT_SPEED IB_RECEIVER_SIDE_MATCHING_SCHEME IB_ROUTABLE_FLID_GID_INDEX
IB_RESILIENCY_PORT_FAILOVER IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS
IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY IB_RESILIENCY_PORT_RECOVERY
IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT
IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX IB_RESILIENCY_PORT_RECOVERY_START_DELAY
IB_SUBNET_AWARE_ROUTING IB_SUBNET_PREFIX_LEN IB_USE_INLINE IB_WARN_RAIL_LOCAL IGNORE_DISABLED_P2P
L1_SHARED_MEMORY_CARVEOUT LL128_BUFFSIZE LL128_C2C LL128_NTHREADS LL_BUFFSIZE LSA_TEAM_SIZE
MAX_NRINGS MAX_P2P_NCHANNELS MIN_NRINGS MIN_P2P_NCHANNELS MLOPART_RDMA_ENABLE MNNVL
MNNVL_CROSS_CLIQUE MNNVL_RAIL_PER_HOST MNNVL_SCATTER_NETS_ENABLE MULTI_SEGMENT_REGISTER
NCHANNELS_PER_NET_PEER NCHANNELS_PER_PEER NET_DISABLE_INTRA NET_FORCE_FLUSH NET_FORCE_MERGE
NET_GDR_MLOPART NET_MERGE_LEVEL NET_OPTIONAL_RECV_COMPLETION NET_OVERHEAD NET_PLUGIN_REF_COUNT
NO_CACHE NUM_RMA_CTX NVB_PRECONNECT NVLINK_UTIL_CENTRIC_SCHED_ENABLE NVLSTREE_MAX_CHUNKSIZE
NVLS_CHUNKSIZE NVLS_NCHANNELS NVTX_DISABLE P2P_EPOCH_ENABLE P2P_MAX_PEERS P2P_NVL_CHUNKSIZE
P2P_PCI_CHUNKSIZE P2P_PER_CHANNEL_NET_BW P2P_READ_ENABLE P2P_SCHEDULE_GROUP_SIZE
P2P_USE_CUDA_MEMCPY PARAM_DUMP_ALL PAT_ENABLE PROFILE_DUMP_FILE PROFILE_EVENT_MASK
PROGRESS_APPENDOP_FREQ PROXY_APPEND_BATCH_SIZE PROXY_CPUSET PROXY_DUMP_SIGNAL PROXY_PROFILE
REPORT_CONNECT_PROGRESS RMA_DISABLE RMA_PLUGIN RMA_PLUGIN_REF_COUNT RMA_PROXY_DUMP_SIGNAL
RMA_PROXY_QUEUE_SIZE SET_CPU_STACK_SIZE SHADOW_MEMPOOL_MAX_SIZE SHM_LOCALITY SHM_MEMCPY_MODE
SHM_USE_CUDA_MEMCPY SINGLE_PROC_MEM_REG_ENABLE SOCKET_INLINE SOCKET_MIN_TASKSIZE SOCKET_RCVBUF
SOCKET_SNDBUF SYM_CE_THRESHOLD SYM_CTAS SYM_KERNEL SYM_NOWIN_ENABLE SYM_REUSE_SYSMEM_HANDLES
SYM_RS_GIN_CHUNK_SIZE SYM_TMA_ENABLE THREAD_THRESHOLDS TOPO_DUMP_FILE_RANK TOPO_SPLIT_MLOPART
UNPACK_DOUBLE_NCHANNELS WARN_ENABLE_DEBUG_INFO WIN_STRIDE WORK_ARGS_BYTES WORK_FIFO_BYTES
WORK_FIFO_DEPTH
"""

# Families of plug-ins and variants, and single names of theirs that no family covers: AWS OFI;
# Google TCPX, FasTrak, gIB and their shim; Mellanox SHARP, UCX and IBext; Meta NCCLX; NVIDIA's
# tests, tuner, inspector and profiler plug-ins
FAMILIES = (
    *("OFI_", "GPUDIRECTTCPX_", "FASTRAK_", "SHIMNET_", "NET_PLUGIN_", "TUNER_CONFIG_", "GIB_"),
    *("SHARP_", "UCX_", "IBEXT_", "IB_EXT_", "CTRAN_", "COLLTRACE", "INSPECTOR_", "PROFILER_"),
    *("TESTS_", "SINGLE_", "PLUGIN_", "MSCCL", "RCCL_"),
)
SINGLE_NAMES = frozenset(("USE_SNAP", "DYNAMIC_CHUNK_SIZE"))
# where NCCL lies and which one it is, for builds and images: NCCL_HOME, NCCL_VERSION …
PLACES = (
    r"(.*_)?(DIRS?|HOME|ROOT|PATHS?|PREFIX|LIBS?|LIBRARY|LIBRARIES|INCLUDES?|VERSION|SRC|BUILD|"
    r"INSTALL|TAG|BRANCH|URL)"
)

# Read neither by NCCL nor by torch, and what does what the name promises.
UNREAD = """
NCCL_TIMEOUT=init_process_group(timeout=…)
NCCL_TIMEOUT_MS=init_process_group(timeout=…)
NCCL_TIMEOUT_SECOND=init_process_group(timeout=…)
NCCL_TIMEOUT_SECONDS=init_process_group(timeout=…)
NCCL_TIMEOUT_MINUTES=init_process_group(timeout=…)
NCCL_LAUNCH_TIMEOUT=init_process_group(timeout=…)
NCCL_SOCKET_TIMEOUT=NCCL_SOCKET_RETRY_CNT and NCCL_SOCKET_RETRY_SLEEP_MSEC
NCCL_SOCKET_TIMEOUT_MS=NCCL_SOCKET_RETRY_CNT and NCCL_SOCKET_RETRY_SLEEP_MSEC
TORCH_DISTRIBUTED_TIMEOUT=init_process_group(timeout=…)
TORCH_DISTRIBUTED_TIMEOUTS=init_process_group(timeout=…)
TORCH_NCCL_TIMEOUT=init_process_group(timeout=…)
NCCL_SOCKET_INTERFACE=NCCL_SOCKET_IFNAME
NCCL_IFNAME=NCCL_SOCKET_IFNAME
GLOO_IFNAME=GLOO_SOCKET_IFNAME
GLOO_SOCKET_INTERFACE=GLOO_SOCKET_IFNAME
NCCL_SOCKET_PORT=net.ipv4.ip_local_port_range: NCCL takes ephemeral ports
NCCL_PORT_RANGE=net.ipv4.ip_local_port_range: NCCL takes ephemeral ports
NCCL_IB_ENABLE=NCCL_IB_DISABLE
NCCL_DISABLE_IB=NCCL_IB_DISABLE
NCCL_P2P_ENABLE=NCCL_P2P_DISABLE
NCCL_DISABLE_P2P=NCCL_P2P_DISABLE
NCCL_SHM_ENABLE=NCCL_SHM_DISABLE
NCCL_NVLS_DISABLE=NCCL_NVLS_ENABLE
NCCL_NET_GDR_DISABLE=NCCL_NET_GDR_LEVEL
NCCL_IB_GDR_LEVEL=NCCL_NET_GDR_LEVEL
NCCL_IB_CUDA_SUPPORT=NCCL_NET_GDR_LEVEL
NCCL_BUFFER_SIZE=NCCL_BUFFSIZE
NCCL_BUFFLE_SIZE=NCCL_BUFFSIZE
NCCL_DEBUG_LEVEL=NCCL_DEBUG
NCCL_SINGLE_RING_THRESHOLD=NCCL_ALGO
NCCL_LL_THRESHOLD=NCCL_PROTO
NCCL_TREE_THRESHOLD=NCCL_ALGO
"""

# torch's, torchrun's and Gloo's, by their whole names. c10d-…: getCvarBool and getCvarInt
# (torch/csrc/distributed/c10d/Utils.hpp); py-…: int() and float() in Python
TORCH = """
TORCH_DISTRIBUTED_DEBUG debug-level
TORCH_CPP_LOG_LEVEL log-level
TORCH_SHOW_CPP_STACKTRACES checked
TORCH_DIST_INIT_BARRIER py-int
TORCH_DISTRIBUTED_USE_TORCHCOMMS any
TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK nonempty
TORCH_GLOO_LAZY_INIT c10d-bool
TORCH_FR_BUFFER_SIZE recorder-int
TORCH_NCCL_TRACE_BUFFER_SIZE recorder-int
TORCH_FR_CPP_STACK recorder-bool
TORCH_NCCL_TRACE_CPP_STACK recorder-bool
TORCH_FR_DUMP_TEMP_FILE any
TORCH_NCCL_DEBUG_INFO_TEMP_FILE any
TORCH_FR_DUMP_DYNAMIC_FILE_NAME nccl-bool
TORCH_INCLUDE_STACK_TRACE any
TORCH_INCLUDE_ONLY_ACTIVE any
TORCH_NCCL_ASYNC_ERROR_HANDLING nccl-int 0 3
TORCH_NCCL_BLOCKING_WAIT nccl-bool
TORCH_NCCL_DESYNC_DEBUG nccl-bool
TORCH_NCCL_ENABLE_TIMING nccl-bool
TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK nccl-bool
TORCH_NCCL_DUMP_ON_TIMEOUT nccl-bool
TORCH_NCCL_EXTRA_DUMP_ON_EXEC any
TORCH_NCCL_PROPAGATE_ERROR nccl-bool
TORCH_NCCL_ENABLE_MONITORING nccl-bool
TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC nccl-int 1 -
TORCH_NCCL_RETHROW_CUDA_ERRORS nccl-bool
TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC nccl-int 1 -
TORCH_NCCL_COORD_CHECK_MILSEC nccl-int 1 -
TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN nccl-bool
TORCH_NCCL_CUDA_EVENT_CACHE nccl-bool
TORCH_NCCL_RANKS_PER_ROOT nccl-int 1 -
TORCH_NCCL_NAN_CHECK nccl-bool
TORCH_NCCL_HIGH_PRIORITY nccl-bool
TORCH_NCCL_BCAST_UNIQUEID any
TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING any
TORCH_NCCL_AVOID_RECORD_STREAMS nccl-bool
TORCH_NCCL_USE_COMM_NONBLOCKING checked
TORCH_NCCL_NONBLOCKING_TIMEOUT any
TORCH_NCCL_ABORT_IN_DESTROY_PG any
TORCH_NCCL_DEBUG_INFO_PIPE_FILE any
TORCH_DISABLE_SHARE_RDZV_TCP_STORE one
TORCHELASTIC_USE_AGENT_STORE python-true
TORCHELASTIC_ENABLE_FILE_TIMER one
PYTORCH_NVML_BASED_CUDA_CHECK one
USE_LIBUV one
PET_STANDALONE py-int
PET_MODULE py-int
PET_NO_PYTHON py-int
PET_RUN_PATH py-int
PET_VIRTUAL_LOCAL_RANK py-int
PET_MAX_RESTARTS py-int
PET_SHUTDOWN_TIMEOUT py-int
PET_MONITOR_INTERVAL py-float
GLOO_SOCKET_IFNAME gloo-interfaces
GLOO_DEVICE_TRANSPORT transport
GLOO_DISABLE_CONNECTION_RETRIES gloo-bool
GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER gloo-bool
GLOO_ENABLE_STORE_V2_API gloo-bool
GLOO_LOG_LEVEL any
OMP_NUM_THREADS openmp
"""

# Names that torch reads no longer, or with a warning only, and what they are called since 2.2.
RENAMED: Mapping[str, str] = {
    f"NCCL_{name}": f"TORCH_NCCL_{name}"
    for name in (
        *("ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "DESYNC_DEBUG", "ENABLE_TIMING"),
        "USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
    )
}

# torch's names that are looked at for typing errors; other TORCH_ names are anybody's
TORCH_FAMILIES = ("TORCH_NCCL_", "TORCH_DISTRIBUTED_", "TORCH_FR_", "TORCH_GLOO_", "TORCH_DIST_")
# near misses of NCCL and GLOO as a first word; RCCL, HCCL, UCCL, MCCL are other libraries
SLIPS: Mapping[str, str] = {
    **dict.fromkeys(("CCL", "NCL", "NCC", "NCLL", "NNCCL", "NCCCL", "NCCLL", "NCLC"), "NCCL"),
    **dict.fromkeys(("GLO", "GLOOO", "GOLO", "LOO", "GLLO"), "GLOO"),
}

SLIPS_MOST = 2
"""Slips of the finger in what is taken for a known name."""


class Known(NamedTuple):
    """A variable with the kind of its value."""

    name: str
    kind: str
    args: tuple[str, ...] = ()


@cache
def known() -> Mapping[str, Known]:
    """Every variable of the tables by its name."""
    found: dict[str, Known] = {}
    for prefix, table in (("NCCL_", NCCL), ("", TORCH)):
        for line in table.split("\n"):
            name, *rest = line.split() or [""]
            if name:
                found[prefix + name] = Known(prefix + name, rest[0], tuple(rest[1:]))
    for name in NCCL_UNDOCUMENTED.split():
        found.setdefault("NCCL_" + name, Known("NCCL_" + name, "any"))
    for old, new in RENAMED.items():
        found[old] = found[new]._replace(name=old)
    return found


@cache
def unread() -> Mapping[str, str]:
    """Names that nobody reads, and what to use in their place."""
    pairs = (line.partition("=") for line in UNREAD.split("\n") if line)
    return {name: instead for name, _, instead in pairs}


@lru_cache(maxsize=4096)
def stranger(name: str) -> str | None:
    """None when a name is known, or may be somebody else's; otherwise the nearest known name, ""
    when none is near."""
    if name in known() or name in unread():
        return None
    first, sign, rest = name.partition("_")
    if first in SLIPS and sign and f"{SLIPS[first]}_{rest}" in known():
        return f"{SLIPS[first]}_{rest}"
    if name.upper() != name and name.upper() in known() and first.upper() in ("NCCL", "GLOO"):
        return name.upper()
    if first == "NCCL" and sign:
        other = rest.startswith(FAMILIES) or rest in SINGLE_NAMES or re.fullmatch(PLACES, rest)
        return None if other else nearest(name) or ""
    if first == "GLOO" or name.startswith(TORCH_FAMILIES):
        return nearest(name) or None
    return None


def nearest(name: str) -> str:
    """The known name that is at most two slips of the finger away, else one that looks alike."""
    if len(name) > 80:
        return ""
    family = name.partition("_")[0]
    names = [n for n in known() if n.startswith(family)]
    best = min(((_distance(name, n), n) for n in names), default=(9, ""))
    if best[0] <= SLIPS_MOST:
        return best[1]
    import difflib

    alike = difflib.get_close_matches(name, names, n=1, cutoff=0.9) if family == "NCCL" else []
    return alike[0] if alike else ""


def _distance(one: str, other: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours from one to the other; more than
    SLIPS_MOST is SLIPS_MOST + 1."""
    far = SLIPS_MOST + 1
    if abs(len(one) - len(other)) > SLIPS_MOST:
        return far
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    one, other = one[start:], other[start:]
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i] + [far] * len(other)
        for j in range(max(1, i - SLIPS_MOST), min(len(other), i + SLIPS_MOST) + 1):
            cost = before[j - 1] + (letter != other[j - 1])
            swapped = i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == other[j - 1]
            row[j] = min(cost, row[j - 1] + 1, before[j] + 1, older[j - 2] + 1 if swapped else far)
        if min(row) > SLIPS_MOST:
            return far
    return min(row[-1], far)
