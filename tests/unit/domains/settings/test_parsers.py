"""What the readers of variables make of a value: NCCL's, torch's, Gloo's, torchrun's, OpenMP's."""

from __future__ import annotations

import pytest

from preflight.domains.settings.parsers import ValueEffect, find_bad_value
from preflight.domains.settings.variables import known_variables

MISREAD, RANGE, SYNTAX = ValueEffect.MISREAD, ValueEffect.RANGE, ValueEffect.SYNTAX
REFUSED, HANGS, IMPORT = ValueEffect.REFUSED, ValueEffect.HANGS, ValueEffect.IMPORT

# those of torch and Gloo were run with torch 2.13
READINGS = {
    "NCCL_IB_DISABLE": {
        None: ("0", "1", "", "false", "off", "-2", "0x1", "1 ", "1\r"),
        MISREAD: ("true", "yes", "on", '"1"', "1x"),
        RANGE: ("2", "-5"),
    },
    "NCCL_BUFFSIZE": {
        None: ("4194304", "0x400000", "-2"),
        MISREAD: ("4M", "04194304", "4 MiB", "9" * 40, "0" * 5000 + "8"),
        RANGE: ("1024",),
    },
    "NCCL_IB_TIMEOUT": {None: ("22", "1", "31"), RANGE: ("0", "32", "600"), MISREAD: ("022",)},
    "NCCL_P2P_LEVEL": {None: ("NVL", "SYS", "0", "4", ""), MISREAD: ("nvl", "NVLINK", " NVL")},
    "NCCL_DEBUG": {None: ("INFO", "warn", "VERSION", "", "0", "off"), MISREAD: ("DEBUG", "INFO\r")},
    "NCCL_DEBUG_SUBSYS": {
        None: ("ALL", "init,net", "^COLL", "INIT,NEWER", ""),
        MISREAD: ("NETWORK", "INFO"),
    },
    "NCCL_ALGO": {
        None: ("Ring", "ring,tree", "^NVLS", "allreduce:tree;broadcast:ring", ""),
        REFUSED: (
            "Collnet",
            "Ring, Tree",
            "auto",
            "allgather:nvls,broadcast:ring",
            "allreduce:",
            "Ring;Tree",
        ),
    },
    "NCCL_PROTO": {None: ("Simple", "^LL128", "LL,LL128,Simple"), REFUSED: ("LL64",)},
    "NCCL_SOCKET_FAMILY": {None: ("AF_INET", ""), MISREAD: ("inet", "IPv4")},
    "NCCL_SOCKET_IFNAME": {
        None: ("eth0", "=eth0", "^docker,lo", "^=eth0,eth1", "", "eth0,"),
        SYNTAX: ("e", "=eth0,=eth1", "^docker0,^lo", "eth0, eth1", '"eth0"', "eth0\r"),
    },
    "NCCL_IB_HCA": {
        None: ("mlx5", "=mlx5_0:1,mlx5_1:1", "^mlx5_bond_0", "mlx5_0:1:0:1"),
        SYNTAX: ("^=mlx5_8,^=mlx5_14", "mlx5_0, mlx5_1"),
    },
    "NCCL_TOPO_FILE": {None: ("/opt/topo.xml", ""), MISREAD: ('"/opt/t.xml"', "/t.xml ", "/t #x")},
    "NCCL_NET": {None: ("AWS Libfabric", "IB", "Socket"), MISREAD: ("'IB'",)},
    "GLOO_SOCKET_IFNAME": {
        None: ("eth0", "eth0,eth1", "lo,"),
        SYNTAX: ("l", "^lo", "=eth0", "lo, lo", '"eth0"'),
    },
    "GLOO_DEVICE_TRANSPORT": {None: ("TCP", "LINUX"), REFUSED: ("tcp", "TCP_TLS", "IBVERBS", "")},
    "PYTORCH_CUDA_ALLOC_CONF": {None: ("expandable_segments:True",), REFUSED: ("True",)},
    "CUDA_DEVICE_ORDER": {
        None: ("PCI_BUS_ID", "FASTEST_FIRST"),
        REFUSED: ("FOO", "PCI", "0", "", "pci_bus_id", "PCI_BUS_ID "),
    },
    "GLOO_DISABLE_CONNECTION_RETRIES": {None: ("1", "True", "0", ""), MISREAD: ("true", "yes")},
    "TORCH_GLOO_LAZY_INIT": {None: ("1", "TRUE", "n"), REFUSED: ("on", "", "2", "1 ")},
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": {
        None: ("0", "1", "3"),
        REFUSED: ("true", "", "9" * 30),
        RANGE: ("4",),
        MISREAD: ("1x",),
    },
    "TORCH_NCCL_ENABLE_MONITORING": {None: ("0", "Yes"), REFUSED: ("off", "disabled")},
    "TORCH_FR_BUFFER_SIZE": {
        None: ("2000", "0", "-1", "2000 "),
        HANGS: ("", "k", "many"),
        MISREAD: ("4k",),
    },
    "TORCH_NCCL_TRACE_BUFFER_SIZE": {None: ("2000",), HANGS: ("abc",)},
    "TORCH_FR_CPP_STACK": {None: ("1", "false"), HANGS: ("on", "")},
    "TORCH_DISTRIBUTED_DEBUG": {None: ("OFF", "info", "DETAIL"), IMPORT: ("", "1", " info", "ALL")},
    "TORCH_DIST_INIT_BARRIER": {None: ("1", " 0"), REFUSED: ("true", "")},
    "TORCH_CPP_LOG_LEVEL": {None: ("INFO", "info", "0", ""), MISREAD: ("debug", "WARN")},
    "TORCH_SHOW_CPP_STACKTRACES": {None: ("0", "1", ""), MISREAD: ("true",)},
    "TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK": {None: ("", "1"), MISREAD: ("0", "false")},
    "TORCHELASTIC_USE_AGENT_STORE": {None: ("True", "False", "0"), MISREAD: ("1", "true")},
    "USE_LIBUV": {None: ("0", "1"), MISREAD: ("true", "on")},
    "PET_STANDALONE": {None: ("0", "1"), REFUSED: ("true", "")},
    "PET_MONITOR_INTERVAL": {None: ("0.1", "5"), REFUSED: ("5s",)},
    "OMP_NUM_THREADS": {None: ("8", "4,2", " 1 ", ""), MISREAD: ("0", "-1", "auto", "8 threads")},
    "NCCL_CHUNK_SIZE": {None: ("anything", "")},
}


@pytest.mark.parametrize(
    ("name", "value", "effect"),
    [(n, v, e) for n, by in READINGS.items() for e, values in by.items() for v in values],
)
def test_reading(name: str, value: str, effect: ValueEffect | None) -> None:
    found = find_bad_value(known_variables()[name], value)
    assert (found.effect if found else None) is effect
    if found:
        assert found.means
        assert found.wants


@pytest.mark.parametrize("value", ["\0", "\ud800", "9" * (1 << 20), ",^" * (1 << 18), ";" * 99_999])
def test_hostile_values(value: str) -> None:
    for variable in known_variables().values():
        find_bad_value(variable, value)
