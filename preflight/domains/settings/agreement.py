"""Which settings must be the same on all ranks, and what their reader makes of a value: 0 counts as
unset where it is the default, Ring,Tree as tree,ring.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from preflight.domains.params import c10d_bool, strtoll, switched_on
from preflight.domains.settings.parsers import LEVELS
from preflight.domains.settings.variables import known_variables

# `NAME default`, - where no value is the same as not set. What both ends of a connection, or all
# ranks of a collective, must do alike.
MUST = """
NCCL_ALGO - NCCL_PROTO - NCCL_NTHREADS 512 NCCL_BUFFSIZE 4194304
NCCL_MIN_NCHANNELS - NCCL_MAX_NCHANNELS - NCCL_MIN_CTAS - NCCL_MAX_CTAS -
NCCL_MIN_P2P_NCHANNELS 1 NCCL_MAX_P2P_NCHANNELS - NCCL_NCHANNELS_PER_NET_PEER -
NCCL_P2P_NET_CHUNKSIZE 131072 NCCL_P2P_LL_THRESHOLD 16384 NCCL_ALLOC_P2P_NET_LL_BUFFERS 0
NCCL_P2P_DISABLE 0 NCCL_P2P_LEVEL - NCCL_P2P_DIRECT_DISABLE 0 NCCL_SHM_DISABLE 0
NCCL_IB_DISABLE 0 NCCL_IB_ROCE_VERSION_NUM 2 NCCL_NET - NCCL_NET_PLUGIN - NCCL_TUNER_PLUGIN -
NCCL_OFI_PROTOCOL - NCCL_SOCKET_FAMILY - NCCL_SOCKET_MAGIC - NCCL_CROSS_NIC 2
NCCL_COLLNET_ENABLE 0 NCCL_COLLNET_NODE_THRESHOLD 2 NCCL_NVLS_ENABLE 2 NCCL_NVLS_NCHANNELS -
NCCL_MNNVL_ENABLE 2 NCCL_CUMEM_ENABLE 1 NCCL_CUMEM_HOST_ENABLE 1 NCCL_PXN_DISABLE 0
NCCL_P2P_PXN_LEVEL 2 NCCL_NVB_DISABLE 0 NCCL_RUNTIME_CONNECT 1 NCCL_NET_SHARED_BUFFERS 1
NCCL_NET_SHARED_COMMS 1 NCCL_PAT_ENABLE 2 NCCL_WIN_ENABLE 1 NCCL_COMM_BLOCKING -
NCCL_COMM_SPLIT_SHARE_RESOURCES - NCCL_COMM_SHRINK_SHARE_RESOURCES -
TORCH_NCCL_RANKS_PER_ROOT 128 TORCH_NCCL_BCAST_UNIQUEID 1 TORCH_NCCL_USE_COMM_NONBLOCKING 0
TORCH_DISTRIBUTED_DEBUG OFF TORCH_DIST_INIT_BARRIER 0 TORCH_DISTRIBUTED_USE_TORCHCOMMS 0
TORCH_GLOO_LAZY_INIT 0 GLOO_DEVICE_TRANSPORT TCP GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER 0
GLOO_ENABLE_STORE_V2_API 0
"""
# What makes one rank slower, or end at another time than the others.
SHOULD = """
NCCL_IB_TIMEOUT 20 NCCL_IB_RETRY_CNT 7 NCCL_IB_SL - NCCL_IB_TC - NCCL_IB_FIFO_TC -
NCCL_IB_QPS_PER_CONNECTION 1 NCCL_IB_SPLIT_DATA_ON_QPS - NCCL_IB_ADAPTIVE_ROUTING -
NCCL_SOCKET_NTHREADS - NCCL_NSOCKS_PERTHREAD - NCCL_SOCKET_RETRY_CNT 34
NCCL_SOCKET_RETRY_SLEEP_MSEC 100 NCCL_DMABUF_ENABLE 1 NCCL_GRAPH_REGISTER 1 NCCL_LOCAL_REGISTER 1
TORCH_NCCL_ASYNC_ERROR_HANDLING - TORCH_NCCL_BLOCKING_WAIT 0 TORCH_NCCL_DESYNC_DEBUG 0
TORCH_NCCL_ENABLE_MONITORING 1 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC -
TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC - TORCH_NCCL_NAN_CHECK 0 CUDA_LAUNCH_BLOCKING 0
CUDA_DEVICE_MAX_CONNECTIONS - PYTORCH_CUDA_ALLOC_CONF - PYTORCH_ALLOC_CONF - UCX_TLS -
FI_PROVIDER - OMP_NUM_THREADS -
"""
# What Accelerate makes of a script, also under torchrun: what is wrapped, and in which type it is
# reduced. Without it nobody reads them (state.py and accelerator.py of accelerate).
ACCELERATE = """
ACCELERATE_USE_CPU - ACCELERATE_USE_FSDP - ACCELERATE_USE_DEEPSPEED - ACCELERATE_USE_MEGATRON_LM -
ACCELERATE_MIXED_PRECISION no ACCELERATE_GRADIENT_ACCUMULATION_STEPS 1
"""
TRUE = ("y", "yes", "t", "true", "on", "1")
"""What Accelerate takes for a yes (str_to_bool)."""
# numbers of which all but 0 switch the same thing on
SWITCHES = ("NCCL_NVLS_ENABLE", "NCCL_MNNVL_ENABLE", "NCCL_PAT_ENABLE", "CUDA_LAUNCH_BLOCKING")


@cache
def compared() -> Mapping[str, str]:
    """Every name that is compared, with its default."""
    words = f"{MUST}{SHOULD}{ACCELERATE}".split()
    return dict(zip(words[::2], words[1::2], strict=True))


@cache
def fatal_if_different() -> frozenset[str]:
    """Those of them by which ranks hang or fail."""
    return frozenset(MUST.split()[::2])


@lru_cache(maxsize=4096)
def meant(name: str, value: str) -> str:
    """What the reader of a variable makes of its value; empty is the default."""
    if name.startswith("ACCELERATE_USE_"):
        return "1" if value.strip().lower() in TRUE else ""
    kind = known_variables()[name].kind if name in known_variables() else ""
    if name in SWITCHES or kind == "flag":
        return str(int(switched_on(value))) if value else ""
    if kind in ("int", "any") and (kind == "int" or strtoll(value)[1] == ""):
        number = strtoll(value)[0]
        # -1 and -2 stand for "not set" in NCCL's own code
        return str(number) if value and number not in (-1, -2) else ""
    if kind == "level":
        old = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")  # levelsOldToNew (src/graph/topo.cc)
        if value[:1].isdecimal():
            return old[min(strtoll(value)[0], 5)]
        return value if value in LEVELS.split() else ""
    if kind in ("algorithms", "protocols"):
        return ";".join(sorted(_listed(part) for part in value.lower().split(";") if part))
    if kind == "word":
        return value if value in known_variables()[name].args else ""
    if kind in ("c10d-bool", "nccl-bool"):
        truth = c10d_bool(value)
        return value if truth is None else str(int(truth))
    if kind in ("nccl-int", "py-int", "checked", "recorder-int"):
        return value.strip().lstrip("+0") or ("0" if value.strip() else "")
    if kind == "gloo-bool":
        return str(int(value in ("1", "True")))
    if kind == "transport":
        return "TCP" if value in ("", "LINUX", "TCP") else value
    if kind == "debug-level":
        return "DETAIL" if value.upper() == "DETAIL" else "OFF"  # INFO only says more
    # a plug-in may be named by its path, which is each node's own
    return value.strip().rpartition("/")[2].lower()


def _listed(part: str) -> str:
    """A list of algorithms in one order: `[function:][^]a,b`."""
    function, colon, names = part.rpartition(":")
    sign = "^" if names.startswith("^") else ""
    return function + colon + sign + ",".join(sorted(names.removeprefix("^").split(",")))


def effective(name: str, value: str) -> str:
    """The value that counts: the one that is set (empty: none), else the default."""
    default = compared()[name]
    standard = "" if default == "-" else meant(name, default)
    return meant(name, value) or standard
