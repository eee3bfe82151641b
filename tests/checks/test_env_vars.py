"""env.vars: what silently does nothing, or something else, is named; a good cluster is silent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import conforms
from preflight.checks import env_vars
from preflight.domains.settings.collect import Settings
from preflight.domains.settings.nccl_conf import Variable
from preflight.host import Host
from preflight.model import Cause, Confidence, Missing, Node, Status, Topology

conforms(env_vars)

TOPO, GRAPH, NO_FILE = "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", ("file-missing",)
BLOCKING = "NCCL_COMM_BLOCKING"
EFA = "AWS Libfabric"
ALLOC = "PYTORCH_CUDA_ALLOC_CONF"
FAIL, WARN = Status.FAIL, Status.WARN
NO_ALGORITHM = "algorithm-unavailable", WARN
TWO_NODES = topology(4, size=8)


def having(environ: Mapping[str, str], *lines: Variable, **hardware: object) -> Settings:
    mine = tuple(Variable(name, value) for name, value in environ.items())
    return Settings((*mine, *lines), **hardware)  # type: ignore[arg-type]


def line(name: str, value: str = "", number: int = 3, assigned: bool = True) -> Variable:
    return Variable(name, value, "/etc/nccl.conf", number, assigned)


H100 = {"gpus": 8, "models": ("NVIDIA H100 80GB HBM3",), "infiniband": ("mlx5_0:1", "mlx5_1:1")}

# what the recipes of AWS, Azure, Google, Oracle and DGX clusters set
GOOD = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH",
    "NCCL_DEBUG_FILE": "/tmp/nccl.%h.%p",
    "NCCL_SOCKET_IFNAME": "=eth0",
    "NCCL_SOCKET_FAMILY": "AF_INET",
    "NCCL_SOCKET_NTHREADS": "16",
    "NCCL_NSOCKS_PERTHREAD": "4",
    "NCCL_IB_HCA": "mlx5",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_IB_RETRY_CNT": "7",
    "NCCL_IB_GID_INDEX": "3",
    "NCCL_IB_TC": "106",
    "NCCL_IB_SL": "0",
    "NCCL_IB_QPS_PER_CONNECTION": "4",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "0",
    "NCCL_IB_ADAPTIVE_ROUTING": "1",
    "NCCL_IB_PCI_RELAXED_ORDERING": "1",
    "NCCL_IB_PKEY": "0x7fff",
    "NCCL_IB_DISABLE": "0",
    "NCCL_P2P_DISABLE": "0",
    "NCCL_P2P_LEVEL": "NVL",
    "NCCL_NET_GDR_LEVEL": "PIX",
    "NCCL_NET_GDR_READ": "1",
    "NCCL_NET": "AWS Libfabric",
    "NCCL_NET_PLUGIN": "libnccl-net-ofi.so",
    "NCCL_TUNER_PLUGIN": "/opt/aws-ofi-nccl/lib/libnccl-ofi-tuner.so",
    "NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml",
    "NCCL_CROSS_NIC": "0",
    "NCCL_ALGO": "Ring,Tree",
    "NCCL_PROTO": "Simple",
    "NCCL_BUFFSIZE": "8388608",
    "NCCL_P2P_NET_CHUNKSIZE": "524288",
    "NCCL_P2P_PCI_CHUNKSIZE": "524288",
    "NCCL_P2P_NVL_CHUNKSIZE": "1048576",
    "NCCL_MIN_NCHANNELS": "32",
    "NCCL_NVLS_ENABLE": "1",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_DMABUF_ENABLE": "1",
    "NCCL_PXN_DISABLE": "1",
    "NCCL_COLLNET_ENABLE": "0",
    "NCCL_IGNORE_CPU_AFFINITY": "1",
    "NCCL_WORK_FIFO_DEPTH": "4194304",
    "NCCL_OFI_NCCL_VERSION": "1",
    "NCCL_FASTRAK_CTRL_DEV": "enp0s12",
    "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE": "/a3plus.textproto",
    "NCCL_TUNER_CONFIG_PATH": "/usr/local/gib/configs/tuner_config_a3u.txtpb",
    "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth1,eth2",
    "NCCL_PLUGIN_P2P": "ucx",
    "NCCL_UCX_TLS": "rc_x,cuda_copy",
    "NCCL_SHARP_DISABLE": "1",
    "NCCL_VERSION": "2.29.7-1",
    "NCCL_HOME": "/usr/local/nccl",
    "UCX_TLS": "rc",
    "UCX_NET_DEVICES": "mlx5_0:1",
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_DEVICE_RDMA": "1",
    "OMP_NUM_THREADS": "8",
    "GLOO_SOCKET_IFNAME": "eth0",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "20000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "true",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "1800",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "TORCH_DISTRIBUTED_DEBUG": "INFO",
    "TORCH_CPP_LOG_LEVEL": "INFO",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "USE_LIBUV": "1",
    "CUDA_LAUNCH_BLOCKING": "0",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}

CASES = (
    Case("nothing is set", having({})),
    Case("a good cluster", having(GOOD, **H100)),
    Case("a good cluster's login node", having(GOOD)),
    Case("nothing was seen", {}),
    Case("timed out", Missing(Cause.TIMED_OUT)),
    # names
    Case(
        "a slip of the finger",
        having({"NCCL_IB-DISABLE": "1"}),
        "name-unknown",
        WARN,
        subject="n1 · NCCL_IB-DISABLE",
    ),
    Case("lower case", having({"nccl_debug": "INFO"}), "name-unknown", WARN),
    Case("a letter lost", having({"CCL_NET_GDR_LEVEL": "PIX"}), "name-unknown", WARN),
    Case("torch's", having({"TORCH_NCCL_BLOCKING_WAITS": "1"}), "name-unknown", WARN),
    Case("far from all", having({"NCCL_EXCLUDE_IB_HCA": "mlx5_7"}), "name-unknown", WARN),
    Case("RCCL has names of its own", having({"NCCL_ODD_NAME": "1"}, amd=True)),
    Case("a slip is one on RCCL too", having({"NCCL_DEBUGG": "1"}, amd=True), "name-unknown"),
    Case("in a file", having({}, line("NCCL_DEBUGG", "INFO")), "name-unknown", WARN),
    Case("nobody's", having({"NCCL_TIMEOUT": "3600"}), "name-unread", WARN),
    Case("torch's nobody's", having({"TORCH_DISTRIBUTED_TIMEOUT": "99"}), "name-unread", WARN),
    Case("old", having({"NCCL_ASYNC_ERROR_HANDLING": "1"}), "name-deprecated", WARN),
    # values
    Case(
        "more channels at least than at most",
        having({"NCCL_MIN_NCHANNELS": "32", "NCCL_MAX_NCHANNELS": "4"}),
        "value-range",
        WARN,
        subject="n1 · NCCL_MAX_NCHANNELS",
    ),
    Case(
        "as many at least as at most",
        having({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "0x10"}),
    ),
    Case(
        "a word is 0",
        having({"NCCL_IB_DISABLE": "true"}, **H100),
        "value-misread",
        WARN,
        subject="n1 · NCCL_IB_DISABLE",
    ),
    Case("4 bytes", having({"NCCL_BUFFSIZE": "4M"}), "value-misread", WARN),
    Case("octal", having({"NCCL_IB_GID_INDEX": "010"}), "value-misread", WARN),
    Case("lower-case level", having({"NCCL_P2P_LEVEL": "nvl"}), "value-misread", WARN),
    Case("quotes in a file", having({}, line("NCCL_IB_DISABLE", '"1"')), "value-misread", WARN),
    Case("a comment", having({}, line("NCCL_TOPO_FILE", "/t.xml # ours")), "value-misread", WARN),
    Case(
        "the environment wins",
        having({"NCCL_IB_DISABLE": "0"}, line("NCCL_IB_DISABLE", "true")),
    ),
    Case(
        "the first file wins",
        having({}, line("NCCL_IB_DISABLE", "0", 1), line("NCCL_IB_DISABLE", "true", 9)),
    ),
    Case("infinite", having({"NCCL_IB_TIMEOUT": "60"}), "value-range", WARN),
    Case("RCCL's ranges are its own", having({"NCCL_NTHREADS": "2048"}, amd=True)),
    Case("not a boolean", having({"TORCH_GLOO_LAZY_INIT": "on"}), "value-refused", FAIL),
    Case("for NCCL", having({"TORCH_NCCL_NAN_CHECK": "on"}, **H100), "value-refused", FAIL),
    Case("without a GPU", having({"TORCH_NCCL_NAN_CHECK": "on"}), "value-refused", WARN),
    Case("algorithm", having({"NCCL_ALGO": "Collnet"}, **H100), "value-refused", FAIL),
    Case("protocol", having({"NCCL_PROTO": "LL256"}, **H100), "value-refused", FAIL),
    Case(
        "algorithm of one rank alone",
        having({"NCCL_ALGO": "tree2"}, gpus=1),
        "value-refused",
        WARN,
        topology=topology(1),
    ),
    Case(
        "an algorithm of all-reduce only",
        having({"NCCL_ALGO": "Tree"}, nccl="2.26.2", **H100),
        "algorithm-unavailable",
        WARN,
        subject="n1 · NCCL_ALGO",
    ),
    Case("the same, of an unknown NCCL", having({"NCCL_ALGO": "nvls"}, gpus=8), *NO_ALGORITHM),
    Case(
        "the same, in a file", having({}, line("NCCL_ALGO", "CollnetChain"), gpus=2), *NO_ALGORITHM
    ),
    Case("all but the only one", having({"NCCL_ALGO": "^Ring"}, gpus=2), *NO_ALGORITHM),
    Case("of one collective", having({"NCCL_ALGO": "allgather:tree"}, gpus=2), *NO_ALGORITHM),
    Case(
        "a protocol for all, with NCCL 2.31",
        having({"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"}, nccl="2.31.2", gpus=2),
        *NO_ALGORITHM,
    ),
    Case(
        "the same with NCCL 2.30",
        having({"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"}, nccl="2.30.7", gpus=2),
    ),
    Case("NCCL that falls back", having({"NCCL_ALGO": "Tree"}, nccl="2.21.5", **H100)),
    Case("of one rank alone", having({"NCCL_ALGO": "Tree"}, gpus=1), topology=topology(1)),
    Case("and no GPU, so no NCCL", having({"NCCL_ALGO": "Tree"})),
    Case("RCCL's algorithms are its own", having({"NCCL_ALGO": "Tree"}, gpus=8, amd=True)),
    *(
        Case(f"NCCL_ALGO={value}", having({"NCCL_ALGO": value}, nccl="2.27.3", **H100))
        for value in (
            *("Ring", "ring", "Ring,Tree", "tree,RING", "^NVLS", "^nvls,nvlstree", "", "***"),
            *("allreduce:tree", "ring;allreduce:tree", "allreduce:^tree", "allreduce:nvls;"),
            "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring",
        )
    ),
    Case("device order", having({"CUDA_DEVICE_ORDER": "FOO"}, gpus=1), "value-refused", FAIL),
    Case("device order, no GPU", having({"CUDA_DEVICE_ORDER": "FOO"}), "value-refused", WARN),
    Case("device order, empty", having({"CUDA_DEVICE_ORDER": ""}, gpus=1), "value-refused", FAIL),
    Case(
        "device order, not to the letter",
        having({"CUDA_DEVICE_ORDER": "pci_bus_id"}, gpus=1),
        "value-refused",
        FAIL,
    ),
    Case("device order as it should be", having({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, **H100)),
    Case("torchrun's switch", having({"PET_STANDALONE": "true"}), "value-refused", FAIL),
    Case("allocator", having({ALLOC: "expandable_segments:true"}, **H100), "value-refused", FAIL),
    Case("allocator's key", having({ALLOC: "expandable_segment:True"}, gpus=1), "value-refused"),
    Case("allocator, no GPU", having({ALLOC: "True"}), "value-refused", WARN),
    Case("allocator, as it should be", having({ALLOC: "expandable_segments:True"}, **H100)),
    Case(
        "InfiniBand is asked for, and is not there",
        having({"NCCL_NET": "IB"}, gpus=8),
        "network-absent",
        FAIL,
    ),
    Case("InfiniBand is asked for", having({"NCCL_NET": "IB"}, **H100)),
    Case("RoCE is asked for", having({"NCCL_NET": "ib"}, gpus=8, ethernet=("mlx5_0:1",))),
    Case(
        "the plugin of the network is off",
        having({"NCCL_NET": EFA, "NCCL_NET_PLUGIN": "none"}, no_plugin="none is loaded", gpus=8),
        "network-absent",
        FAIL,
    ),
    Case("no network", having({"NCCL_NET": "none"}, no_plugin="x", gpus=1), "network-absent", FAIL),
    Case("the empty network", having({"NCCL_NET": ""}, gpus=1), "network-absent", FAIL),
    Case("the empty network, no GPU", having({"NCCL_NET": ""})),
    Case("its plugin may be there", having({"NCCL_NET": EFA}, gpus=8)),
    Case("a plugin is missing, no GPU", having({"NCCL_NET": EFA}, no_plugin="x")),
    Case("no plugin is needed", having({"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}, gpus=8)),
    Case("no GPU, so no NCCL", having({"NCCL_NET": "IB"})),
    Case("no topology", having({TOPO: "/x"}, file_problems={TOPO: "gone"}, **H100), *NO_FILE, WARN),
    Case("no topology, no GPU", having({TOPO: "/x"}, file_problems={TOPO: "gone"})),
    Case("no graph", having({GRAPH: "/x"}, file_problems={GRAPH: "gone"}, **H100), *NO_FILE, FAIL),
    Case(
        "no graph, one GPU",
        having({GRAPH: "/x"}, file_problems={GRAPH: "gone"}, gpus=1),
        *NO_FILE,
        FAIL,
    ),
    Case("no topology, one GPU", having({TOPO: "/x"}, file_problems={TOPO: "gone"}, gpus=1)),
    Case("no graph, no GPU", having({GRAPH: "/x"}, file_problems={GRAPH: "gone"})),
    Case(
        "an error page for a topology",
        having({TOPO: "/x"}, file_flaws={TOPO: "text, not an XML element"}, gpus=1),
        "file-malformed",
        FAIL,
    ),
    Case(
        "a graph of another type of machine",
        having({}, line("NCCL_GRAPH_FILE", "/x"), graph_gpus=4, gpus=2),
        "graph-differs",
        FAIL,
    ),
    Case(
        "a graph of this one",
        having({"NCCL_GRAPH_FILE": "/x"}, graph_gpus=4, gpus=4),
    ),
    Case(
        "a graph of fewer, as for a part of it",
        having({"NCCL_GRAPH_FILE": "/x"}, graph_gpus=2, gpus=4),
    ),
    Case(
        "Accelerate on the CPU",
        having({"ACCELERATE_USE_CPU": "True"}, gpus=4),
        "accelerate-on-cpu",
        Status.WARN,
    ),
    Case("Accelerate on GPUs", having({"ACCELERATE_USE_CPU": "False"}, gpus=4)),
    Case("Accelerate on a machine without GPUs", having({"ACCELERATE_USE_CPU": "True"})),
    Case("a topology nobody reads", having({TOPO: "/x"}, file_flaws={TOPO: "a tab"})),
    Case("nobody waits", having({BLOCKING: "0"}, gpus=1), "comm-nonblocking", FAIL),
    Case(
        "nobody waits, by a file",
        having({}, line(BLOCKING, "0"), gpus=1),
        "comm-nonblocking",
        FAIL,
    ),
    Case("torch waits", having({BLOCKING: "0", "TORCH_NCCL_USE_COMM_NONBLOCKING": "1"}, gpus=1)),
    Case("torch alone is to wait", having({"TORCH_NCCL_USE_COMM_NONBLOCKING": "1"}, gpus=1)),
    Case("NCCL waits", having({BLOCKING: "1"}, gpus=1)),
    Case("as NCCL's default", having({BLOCKING: ""}, gpus=1)),
    Case("nobody waits, and no GPU", having({BLOCKING: "0"})),
    Case("no shared memory, with NVLink", having({"NCCL_SHM_DISABLE": "1"}, **H100)),
    Case(
        "neither that nor P2P",
        having({"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}, **H100),
        "fast-path-off",
        WARN,
    ),
    Case(
        "no shared memory, GPUs on PCIe",
        having({"NCCL_SHM_DISABLE": "1"}, gpus=4, models=("NVIDIA L40S",)),
        "fast-path-off",
        WARN,
    ),
    Case("transport", having({"GLOO_DEVICE_TRANSPORT": "tcp"}), "value-refused", FAIL),
    Case(
        "too late for torch",
        having({}, line("TORCH_GLOO_LAZY_INIT", "on"), line("TORCH_DISTRIBUTED_DEBUG", "x")),
    ),
    Case("hangs", having({"TORCH_FR_BUFFER_SIZE": ""}), "value-hangs", FAIL),
    Case("hangs by its old name", having({"TORCH_NCCL_TRACE_BUFFER_SIZE": "x"}), "value-hangs"),
    Case("import", having({"TORCH_DISTRIBUTED_DEBUG": "1"}), "import-fails", FAIL),
    Case("empty level", having({"TORCH_DISTRIBUTED_DEBUG": ""}), "import-fails", FAIL),
    # interfaces
    Case("NCCL's ^ for Gloo", having({"GLOO_SOCKET_IFNAME": "^lo"}), "interface-syntax", FAIL),
    Case("= for Gloo", having({"GLOO_SOCKET_IFNAME": "=eth0"}), "interface-syntax", FAIL),
    Case("one letter", having({"GLOO_SOCKET_IFNAME": "l"}), "interface-syntax", WARN),
    Case("= twice", having({"NCCL_SOCKET_IFNAME": "=e0,=e1"}), "interface-syntax", WARN),
    Case("HCAs", having({"NCCL_IB_HCA": "^=mlx5_8,^=mlx5_9"}), "interface-syntax", WARN),
    # switches
    Case("DETAIL", having({"TORCH_DISTRIBUTED_DEBUG": "detail"}), "debug-detail", WARN),
    Case(
        "no error handling",
        having({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, **H100),
        "watchdog-off",
        WARN,
    ),
    Case(
        "but a blocking wait",
        having({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_BLOCKING_WAIT": "1"}, **H100),
    ),
    Case(
        "no error handling on AMD",
        having({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, amd=True),
        "watchdog-off",
    ),
    Case("nothing to watch", having({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"})),
    Case("no monitor, as torch advises", having({"TORCH_NCCL_ENABLE_MONITORING": "0"}, gpus=1)),
    Case(
        "a heartbeat of five seconds",
        having({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "5"}, gpus=1),
        "heartbeat-short",
        WARN,
    ),
    Case(
        "a plugin that is not there, on two nodes",
        having({"NCCL_NET_PLUGIN": "ofi"}, no_plugin="no plugin 'ofi' is found", gpus=8),
        "plugin-absent",
        WARN,
        topology=TWO_NODES,
    ),
    Case(
        "on one node",
        having({"NCCL_NET_PLUGIN": "ofi"}, no_plugin="no plugin 'ofi' is found", gpus=8),
    ),
    Case(
        "no plugin at all",
        having({"NCCL_NET_PLUGIN": "none"}, no_plugin="NCCL_NET_PLUGIN is none", gpus=8),
        topology=TWO_NODES,
    ),
    Case(
        "NCCL_COMM_ID of another job",
        having({"NCCL_COMM_ID": "10.1.1.1:4444"}, comm_id="this node has eth0 10.0.0.1", gpus=8),
        "comm-id-elsewhere",
        FAIL,
    ),
    Case("of this node", having({"NCCL_COMM_ID": "10.0.0.1:4444"}, gpus=8)),
    Case(
        "where rank 0 is not",
        {"n2": having({"NCCL_COMM_ID": "10.0.0.1:4444"}, comm_id="this node has …", gpus=8)},
        topology=Topology(size=16, nodes=(Node("n2", tuple(range(8, 16))),)),
    ),
    Case("and no GPU", having({"NCCL_COMM_ID": "10.1.1.1:4444"}, comm_id="this node has …")),
    Case(
        "a log in a folder that is not there",
        having({"NCCL_DEBUG": "info", "NCCL_DEBUG_FILE": "/l/%h"}, log_folder="/l", gpus=1),
        "log-folder-missing",
        WARN,
    ),
    Case("a log that nobody writes", having({"NCCL_DEBUG_FILE": "/l/%h"}, log_folder="/l", gpus=1)),
    Case("a preload that is gone", having({}, preloads=("/x.so",)), "preload-missing", WARN),
    Case(
        "128 sockets of 16 threads",
        having({"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}),
        "value-range",
        WARN,
    ),
    Case("64", having({"NCCL_SOCKET_NTHREADS": "8", "NCCL_NSOCKS_PERTHREAD": "8"})),
    Case("a short one", having({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60"}, gpus=1)),
    Case(
        "a heartbeat that nobody waits for",
        having(
            {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "5", "TORCH_NCCL_ENABLE_MONITORING": "0"}, gpus=1
        ),
    ),
    Case("without a GPU", having({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "5"})),
    Case("P2P off", having({"NCCL_P2P_DISABLE": "1"}, **H100), "fast-path-off", WARN),
    Case("P2P off on one GPU", having({"NCCL_P2P_DISABLE": "1"}, gpus=1)),
    Case(
        "P2P off on GeForce",
        having({"NCCL_P2P_DISABLE": "1"}, gpus=4, models=("NVIDIA GeForce RTX 4090",)),
    ),
    Case("P2P off, models unknown", having({"NCCL_P2P_DISABLE": "1"}, gpus=2), "fast-path-off"),
    Case("P2P at level LOC", having({"NCCL_P2P_LEVEL": "LOC"}, **H100), "fast-path-off", WARN),
    Case("SHM off", having({"NCCL_SHM_DISABLE": "1"}, gpus=2), "fast-path-off", WARN),
    Case("IB off", having({"NCCL_IB_DISABLE": "1"}, **H100), "fast-path-off", WARN),
    Case("IB off without any", having({"NCCL_IB_DISABLE": "1"}, gpus=8)),
    Case("IB off in a file", having({}, line("NCCL_IB_DISABLE", "1"), **H100), "fast-path-off"),
    Case("sockets on IB", having({"NCCL_NET": "Socket"}, **H100), "fast-path-off", WARN),
    Case("RoCE off on one node", having({"NCCL_IB_DISABLE": "1"}, ethernet=("mlx5_0:1",))),
    Case(
        "RoCE off on two nodes",
        having({"NCCL_IB_DISABLE": "1"}, ethernet=("mlx5_0:1",)),
        "fast-path-off",
        WARN,
        topology=topology(4, size=8),
    ),
    Case("blocking", having({"CUDA_LAUNCH_BLOCKING": "1"}, gpus=1), "launch-blocking", WARN),
    Case("blocking nothing", having({"CUDA_LAUNCH_BLOCKING": "1"})),
    # files
    Case("blanks around =", having({}, line("NCCL_DEBUG ", " INFO")), "conf-syntax", WARN),
    Case("export", having({}, line("export NCCL_DEBUG", "INFO")), "conf-syntax", WARN),
    Case("no =", having({}, line("NCCL_DEBUG INFO", "", 1, False)), "conf-syntax", WARN),
    Case("no value", having({}, line("NCCL_DEBUG", "", 1, False)), "conf-syntax", WARN),
    Case(
        "no such file",
        having({"NCCL_CONF_FILE": "~/nccl.conf"}, conf_problem="~ is not expanded"),
        "conf-missing",
        WARN,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(env_vars, case)


def test_every_code_has_a_case() -> None:
    assert {c.code for c in CASES} - {None} == set(env_vars.FINDINGS)


def test_a_good_cluster_is_a_fair_sample() -> None:
    assert len(GOOD) > 64


def test_value_place_and_meaning_are_said() -> None:
    case = Case("", having({}, line("NCCL_BUFFSIZE", "4M\r", 12)))
    (finding,) = judged(env_vars, case)
    assert finding.saw == r"NCCL_BUFFSIZE='4M\r' (/etc/nccl.conf line 12): NCCL reads 4"
    assert finding.expected == "a number of at least 4096"


@pytest.mark.parametrize(
    ("value", "missing", "wants"),
    [
        ("Tree", "Broadcast, Reduce, AllGather, ReduceScatter", "'ring;allreduce:tree'"),
        ("NVLS,NVLSTree", "Broadcast, Reduce", "'ring;allreduce:nvls,nvlstree'"),
        ("PAT", "Broadcast, Reduce, AllReduce", "ring,tree"),
        ("^Ring", "Broadcast, Reduce", "'ring;allreduce:^ring'"),
    ],
)
def test_the_collectives_without_an_algorithm_are_named(
    value: str, missing: str, wants: str
) -> None:
    (finding,) = judged(env_vars, Case("", having({"NCCL_ALGO": value}, nccl="2.26.2", **H100)))
    assert (
        finding.saw
        == f"NCCL_ALGO='{value}' (environment): no algorithm for {missing} · NCCL 2.26.2"
    )
    assert finding.advice.text.endswith(f"NCCL_ALGO={wants}")
    assert finding.advice.now == "unset NCCL_ALGO"
    assert not finding.alternatives
    (unknown,) = judged(env_vars, Case("", having({"NCCL_ALGO": value}, **H100)))
    assert unknown.alternatives == ("NCCL before 2.24, which falls back to Ring",)


def test_a_value_that_nccl_refuses_is_one_finding() -> None:
    for value in ("Tree2", "allgather:nvls,reducescatter:nvls", "Tree;allreduce:"):
        (finding,) = judged(env_vars, Case("", having({"NCCL_ALGO": value}, **H100)))
        assert finding.code == "value-refused"


def test_what_torch_dies_of_explains_what_follows() -> None:
    (finding,) = judged(env_vars, Case("", having({"TORCH_DISTRIBUTED_DEBUG": "x"})))
    assert finding.explains == ("host.software", "rdzv.*", "world.*")
    (finding,) = judged(env_vars, Case("", having({"TORCH_FR_BUFFER_SIZE": "x"})))
    assert finding.explains == ("rdzv.*", "world.*")
    assert finding.confidence is Confidence.CERTAIN


@pytest.mark.slow
def test_many_equal_findings_are_bounded() -> None:
    many = having({f"NCCL_NONSENSE_{n}": "x" * 1024 for n in range(400)})
    found = judged(env_vars, Case("", many))
    assert len(found) == 8
    assert found[-1].saw.endswith("and 392 more like it")


def test_measured_says_what_is_set() -> None:
    seen = world("env.vars", having(GOOD, line("NCCL_X", "1"), **H100))
    text = env_vars.measured(seen).text
    assert text == "66 settings of NCCL, torch and Gloo · NCCL_SOCKET_IFNAME==eth0 · /etc/nccl.conf"
    assert env_vars.measured(world("env.vars", having({}))).text == "all defaults"


def test_observe_this_machine() -> None:
    round_trips(env_vars.observe(Host(), context()))


CONF = """\
# NCCL_COMMENTED=1
NCCL_IB_DISABLE=1\r
NCCL_DEBUG = INFO
export NCCL_ALGO=Ring
NCCL_PROTO LL

UNRELATED_PASSWORD=hunter2
 NCCL_DEBUG=WARN
NCCL_SECRET_TOKEN=hunter2
"""


def tree(root: Path, environ: Mapping[str, str]) -> Host:
    (root / "etc").mkdir()
    (root / "etc/nccl.conf").write_bytes(CONF.encode())
    return Host(str(root), environ)


def test_observe_reads_files_as_nccl_does(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.nccl.conf").write_text("NCCL_SOCKET_IFNAME=eth9")
    seen = env_vars.observe(tree(tmp_path, {"HOME": "/home", "PATH": "/bin"}), context())
    lines = [(v.name, v.value, v.line, v.assigned) for v in seen.variables if "etc" in v.file]
    assert lines == [
        ("NCCL_IB_DISABLE", "1\r", 2, True),
        ("NCCL_DEBUG ", " INFO", 3, True),
        ("export NCCL_ALGO", "Ring", 4, True),
        ("NCCL_PROTO LL", "", 5, False),
        (" NCCL_DEBUG", "WARN", 8, True),
        ("NCCL_SECRET_TOKEN", "***", 9, True),
    ]
    assert seen.variables[0] == Variable("NCCL_SOCKET_IFNAME", "eth9", "/home/.nccl.conf", 1)
    assert "hunter2" not in repr(seen)
    codes = {f.code for f in judged(env_vars, Case("", seen))}
    assert codes == {"conf-syntax", "name-unknown"}
    round_trips(seen)


def test_observe_sees_the_hardware(tmp_path: Path) -> None:
    for number in range(2):
        card = tmp_path / f"proc/driver/nvidia/gpus/0000:{number}8:00.0"
        card.mkdir(parents=True)
        (card / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 1\n")
    ports = {"mlx5_0": ("4: ACTIVE", "InfiniBand"), "mlx5_1": ("1: DOWN", "InfiniBand")}
    ports |= {"mlx5_2": ("4: ACTIVE", "Ethernet"), "efa_0": ("4: ACTIVE", "Unspecified")}
    for device, (state, layer) in ports.items():
        port = tmp_path / f"sys/class/infiniband/{device}/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(state + "\n")
        (port / "link_layer").write_text(layer + "\n")
    seen = env_vars.observe(Host(str(tmp_path), {"NCCL_P2P_DISABLE": "1"}), context())
    assert (seen.gpus, seen.models) == (2, ("NVIDIA H100 80GB HBM3",))
    assert (seen.infiniband, seen.ethernet) == (("mlx5_0:1",), ("mlx5_2:1",))
    assert [f.code for f in judged(env_vars, Case("", seen))] == ["fast-path-off"]


@pytest.mark.parametrize(
    ("environ", "file", "why"),
    [
        ({"NCCL_NET": EFA}, "", "no libnccl-net.so is found"),
        ({"NCCL_NET": EFA}, "opt/ofi/libnccl-net.so", ""),
        ({"NCCL_NET": EFA, "NCCL_NET_PLUGIN": "none"}, "opt/ofi/libnccl-net.so", "is none"),
        ({"NCCL_NET": "ib", "NCCL_NET_PLUGIN": "none"}, "", ""),
        ({"NCCL_NET_PLUGIN": "none"}, "", ""),
    ],
)
def test_observe_looks_for_the_plugin_of_a_network(
    tmp_path: Path, environ: Mapping[str, str], file: str, why: str
) -> None:
    (tmp_path / "opt/ofi").mkdir(parents=True)
    if file:
        (tmp_path / file).touch()
    host = Host(str(tmp_path), {**environ, "LD_LIBRARY_PATH": "/opt/ofi"})
    seen = env_vars.observe(host, context())
    assert seen.no_plugin.endswith(why)
    assert bool(seen.no_plugin) is bool(why)
    round_trips(seen)


@pytest.mark.slow
def test_observe_is_bounded(tmp_path: Path) -> None:
    environ = {f"NCCL_NONSENSE_{n}": "x" for n in range(10_000)}
    environ |= {"NCCL_DEBUG": "x" * (1 << 20), "NCCL_" + "Y" * (1 << 20): "1"}
    began = time.process_time()
    seen = env_vars.observe(Host(str(tmp_path), environ), context())
    judged(env_vars, Case("", seen))
    assert time.process_time() - began < 2.0
    assert seen.variables[0].name == "NCCL_DEBUG"
    assert len(seen.variables[0].value) == 1024
    assert (len(seen.variables), seen.left_out) == (400, 9602)
