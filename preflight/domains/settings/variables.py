"""The environment variables of NCCL, torch.distributed, torchrun and Gloo, and near misses of them.

Names and ranges after NCCL's user guide and source (2.18 to 2.30), torch's source and binaries (2.4
to 2.14). The tables are parsed when first asked for; what a kind of value means is in parsers.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

# `kind argument…: NAME…`, the names without NCCL_. An int's arguments are its least and greatest
# documented value, - for none. An indented line goes on with the names.
NCCL = """
interfaces: SOCKET_IFNAME IB_HCA OOB_NET_IFNAME
word AF_INET AF_INET6: SOCKET_FAMILY IB_ADDR_FAMILY
int - -: SOCKET_MAGIC MNNVL_UUID MNNVL_CLIQUE_ID
int 0 -: SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC SOCKET_POLL_TIMEOUT_MSEC IB_GID_INDEX
  COLLNET_NODE_THRESHOLD IB_AR_THRESHOLD P2P_LL_THRESHOLD RAS_TIMEOUT_FACTOR
int 0 16: SOCKET_NTHREADS
int 0 64: NSOCKS_PERTHREAD
int 0 2: CROSS_NIC IB_PCI_RELAXED_ORDERING P2P_PXN_LEVEL NVLS_ENABLE MNNVL_ENABLE
int 1 31: IB_TIMEOUT
int 0 7: IB_RETRY_CNT
text: IB_ADDR_RANGE NET NET_PLUGIN TUNER_PLUGIN PROFILER_PLUGIN ENV_PLUGIN CONF_FILE DEBUG_FILE
  DEBUG_TIMESTAMP_LEVELS CTA_POLICY NETDEVS_POLICY TOPO_FILE TOPO_DUMP_FILE CHECK_MODE LAUNCH_MODE
  NET_MERGE_POLICY RAS_ADDR
int 1 2: IB_ROCE_VERSION_NUM
int 0 15: IB_SL
int 0 255: IB_TC IB_FIFO_TC
flag: IB_RETURN_ASYNC_EVENTS OOB_NET_ENABLE IGNORE_CPU_AFFINITY COLLNET_ENABLE MULTI_RANK_GPU_ENABLE
  SET_THREAD_NAME P2P_DISABLE P2P_DIRECT_DISABLE SHM_DISABLE CHECKS_DISABLE CHECK_POINTERS
  IB_DISABLE IB_OOO_RQ IB_SPLIT_DATA_ON_QPS IB_ADAPTIVE_ROUTING IB_ECE_ENABLE CUMEM_ENABLE
  CUMEM_HOST_ENABLE NET_GDR_C2C NET_GDR_READ NET_SHARED_BUFFERS NET_SHARED_COMMS IGNORE_NET_MISMATCH
  IGNORE_COLLNET_MISMATCH NVB_DISABLE PXN_DISABLE PXN_C2C RUNTIME_CONNECT GRAPH_REGISTER
  LOCAL_REGISTER LEGACY_CUDA_REGISTER WIN_ENABLE SET_STACK_SIZE GRAPH_MIXING_SUPPORT
  GRAPH_STREAM_ORDERING DMABUF_ENABLE ALLOC_P2P_NET_LL_BUFFERS COMM_BLOCKING IB_MERGE_NICS
  RAS_ENABLE LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL IPC_USE_ABSTRACT_SOCKET SYM_GIN_KERNELS_ENABLE
int 1 -: UID_STAGGER_THRESHOLD UID_STAGGER_RATE MAX_NCHANNELS MIN_NCHANNELS P2P_NET_CHUNKSIZE
debug: DEBUG
subsystems: DEBUG_SUBSYS
any: DEBUG_TIMESTAMP_FORMAT
level: P2P_LEVEL NET_GDR_LEVEL
int 4096 -: BUFFSIZE
int 32 1024: NTHREADS
int 1 128: IB_QPS_PER_CONNECTION
int 0 1: MEM_SYNC_DOMAIN
algorithms: ALGO
protocols: PROTO
int 0 8: CGA_CLUSTER_SIZE
int 1 64: MAX_CTAS MIN_CTAS
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
NCCL_TIMEOUT NCCL_TIMEOUT_MS NCCL_TIMEOUT_SECOND NCCL_TIMEOUT_SECONDS NCCL_TIMEOUT_MINUTES
  NCCL_LAUNCH_TIMEOUT TORCH_DISTRIBUTED_TIMEOUT TORCH_DISTRIBUTED_TIMEOUTS
  TORCH_NCCL_TIMEOUT=init_process_group(timeout=…)
NCCL_SOCKET_TIMEOUT NCCL_SOCKET_TIMEOUT_MS=NCCL_SOCKET_RETRY_CNT and NCCL_SOCKET_RETRY_SLEEP_MSEC
NCCL_SOCKET_INTERFACE NCCL_IFNAME=NCCL_SOCKET_IFNAME
GLOO_IFNAME GLOO_SOCKET_INTERFACE=GLOO_SOCKET_IFNAME
NCCL_SOCKET_PORT NCCL_PORT_RANGE=net.ipv4.ip_local_port_range: NCCL takes ephemeral ports
NCCL_IB_ENABLE NCCL_DISABLE_IB=NCCL_IB_DISABLE
NCCL_P2P_ENABLE NCCL_DISABLE_P2P=NCCL_P2P_DISABLE
NCCL_SHM_ENABLE=NCCL_SHM_DISABLE
NCCL_NVLS_DISABLE=NCCL_NVLS_ENABLE
NCCL_NET_GDR_DISABLE NCCL_IB_GDR_LEVEL NCCL_IB_CUDA_SUPPORT=NCCL_NET_GDR_LEVEL
NCCL_BUFFER_SIZE NCCL_BUFFLE_SIZE=NCCL_BUFFSIZE
NCCL_DEBUG_LEVEL=NCCL_DEBUG
NCCL_SINGLE_RING_THRESHOLD NCCL_TREE_THRESHOLD=NCCL_ALGO
NCCL_LL_THRESHOLD=NCCL_PROTO
"""

# torch's, torchrun's and Gloo's, by their whole names. c10d-…: getCvarBool and getCvarInt
# (torch/csrc/distributed/c10d/Utils.hpp); py-…: int() and float() in Python
TORCH = """
debug-level: TORCH_DISTRIBUTED_DEBUG
log-level: TORCH_CPP_LOG_LEVEL
checked: TORCH_SHOW_CPP_STACKTRACES TORCH_NCCL_USE_COMM_NONBLOCKING
py-int: TORCH_DIST_INIT_BARRIER PET_STANDALONE PET_MODULE PET_NO_PYTHON PET_RUN_PATH
  PET_VIRTUAL_LOCAL_RANK PET_MAX_RESTARTS PET_SHUTDOWN_TIMEOUT
any: TORCH_DISTRIBUTED_USE_TORCHCOMMS TORCH_FR_DUMP_TEMP_FILE TORCH_NCCL_DEBUG_INFO_TEMP_FILE
  TORCH_INCLUDE_STACK_TRACE TORCH_INCLUDE_ONLY_ACTIVE TORCH_NCCL_EXTRA_DUMP_ON_EXEC
  TORCH_NCCL_BCAST_UNIQUEID TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING
  TORCH_NCCL_NONBLOCKING_TIMEOUT TORCH_NCCL_ABORT_IN_DESTROY_PG TORCH_NCCL_DEBUG_INFO_PIPE_FILE
  GLOO_LOG_LEVEL
nonempty: TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK
c10d-bool: TORCH_GLOO_LAZY_INIT
recorder-int: TORCH_FR_BUFFER_SIZE TORCH_NCCL_TRACE_BUFFER_SIZE
recorder-bool: TORCH_FR_CPP_STACK TORCH_NCCL_TRACE_CPP_STACK
nccl-bool: TORCH_FR_DUMP_DYNAMIC_FILE_NAME TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_DESYNC_DEBUG
  TORCH_NCCL_ENABLE_TIMING TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK TORCH_NCCL_DUMP_ON_TIMEOUT
  TORCH_NCCL_PROPAGATE_ERROR TORCH_NCCL_ENABLE_MONITORING TORCH_NCCL_RETHROW_CUDA_ERRORS
  TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN TORCH_NCCL_CUDA_EVENT_CACHE TORCH_NCCL_NAN_CHECK
  TORCH_NCCL_HIGH_PRIORITY TORCH_NCCL_AVOID_RECORD_STREAMS
nccl-int 0 3: TORCH_NCCL_ASYNC_ERROR_HANDLING
nccl-int 1 -: TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC
  TORCH_NCCL_COORD_CHECK_MILSEC TORCH_NCCL_RANKS_PER_ROOT
one: TORCH_DISABLE_SHARE_RDZV_TCP_STORE TORCHELASTIC_ENABLE_FILE_TIMER PYTORCH_NVML_BASED_CUDA_CHECK
  USE_LIBUV
python-true: TORCHELASTIC_USE_AGENT_STORE
py-float: PET_MONITOR_INTERVAL
gloo-interfaces: GLOO_SOCKET_IFNAME
transport: GLOO_DEVICE_TRANSPORT
device-order: CUDA_DEVICE_ORDER
allocator: PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF
gloo-bool: GLOO_DISABLE_CONNECTION_RETRIES GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER
  GLOO_ENABLE_STORE_V2_API
openmp: OMP_NUM_THREADS
"""

# Names that torch reads no longer, or with a warning only, and what they are called since 2.2.
RENAMED: Mapping[str, str] = {
    f"NCCL_{name}": f"TORCH_NCCL_{name}"
    for name in (
        *("ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "DESYNC_DEBUG", "ENABLE_TIMING"),
        "USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
    )
}

# torch's names that are looked at for typos; other TORCH_ names are anybody's
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


def _rows(table: str, sign: str) -> Iterator[tuple[str, str, str]]:
    """The rows of a table, parted at the first `sign`."""
    return (row.partition(sign) for row in table.strip().replace("\n  ", " ").split("\n"))


@cache
def known_variables() -> Mapping[str, Known]:
    """Every variable of the tables by its name."""
    found: dict[str, Known] = {}
    for prefix, table in (("NCCL_", NCCL), ("", TORCH)):
        for kinds, _, names in _rows(table, ":"):
            kind, *args = kinds.split()
            for name in names.split():
                found[prefix + name] = Known(prefix + name, kind, tuple(args))
    for name in NCCL_UNDOCUMENTED.split():
        found.setdefault("NCCL_" + name, Known("NCCL_" + name, "any"))
    for old, new in RENAMED.items():
        found[old] = found[new]._replace(name=old)
    return found


@cache
def unread_names() -> Mapping[str, str]:
    """Names that neither NCCL nor torch reads, and what to use instead."""
    return {name: instead for names, _, instead in _rows(UNREAD, "=") for name in names.split()}


@lru_cache(maxsize=4096)
def unknown_name(name: str) -> str | None:
    """None when a name is known, or may belong to other software; otherwise the nearest known name,
    "" when none is near."""
    if name in known_variables() or name in unread_names():
        return None
    first, sign, rest = name.partition("_")
    if first in SLIPS and sign and f"{SLIPS[first]}_{rest}" in known_variables():
        return f"{SLIPS[first]}_{rest}"
    if (
        name.upper() != name
        and name.upper() in known_variables()
        and first.upper() in ("NCCL", "GLOO")
    ):
        return name.upper()
    if first == "NCCL" and sign:
        other = rest.startswith(FAMILIES) or rest in SINGLE_NAMES or re.fullmatch(PLACES, rest)
        return None if other else nearest_name(name) or ""
    if first == "GLOO" or name.startswith(TORCH_FAMILIES):
        return nearest_name(name) or None
    return None


def nearest_name(name: str) -> str:
    """The known name that is at most two slips of the finger away, else one that looks alike."""
    if len(name) > 80:
        return ""
    family = name.partition("_")[0]
    names = [n for n in known_variables() if n.startswith(family)]
    best = min(((slips(name, n), n) for n in names), default=(9, ""))
    if best[0] <= SLIPS_MOST:
        return best[1]
    import difflib

    alike = difflib.get_close_matches(name, names, n=1, cutoff=0.9) if family == "NCCL" else []
    return alike[0] if alike else ""


def slips(one: str, other: str) -> int:
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
