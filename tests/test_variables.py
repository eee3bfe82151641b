"""variables, readers: names near and far, and what each reader makes of a value."""

from __future__ import annotations

import time

import pytest

from preflight.domains.params import strtoll
from preflight.domains.settings.parsers import READERS, Effect, reading
from preflight.domains.settings.variables import (
    NCCL_UNDOCUMENTED,
    RENAMED,
    known,
    nearest,
    stranger,
    unread,
)


def test_tables_are_sound() -> None:
    assert len(known()) > 300
    for variable in known().values():
        assert variable.kind in READERS, variable
        reading(variable, "")  # the arguments are what the kind's reader takes
        reading(variable, "1")
    assert not set(unread()) & set(known())
    assert all(instead for instead in unread().values())
    names = NCCL_UNDOCUMENTED.split()
    assert len(names) == len(set(names))
    assert all(known()["NCCL_" + name].kind == "any" for name in names)
    assert set(RENAMED.values()) <= set(known())


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NCCL_IB-DISABLE", "NCCL_IB_DISABLE"),
        ("NCCL_P2P5ISABLE", "NCCL_P2P_DISABLE"),
        ("NCCL_IB_TIMOUT", "NCCL_IB_TIMEOUT"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_NET_GDR_LEVLE", "NCCL_NET_GDR_LEVEL"),
        ("NCCL_DEBUG ", "NCCL_DEBUG"),
        ("CCL_NET_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("GLO_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
        ("GLOO_SOCKET_IFNAM", "GLOO_SOCKET_IFNAME"),
        ("TORCH_NCCL_BLOCKING_WAITS", "TORCH_NCCL_BLOCKING_WAIT"),
        ("TORCH_DISTRIBUTED_DEBG", "TORCH_DISTRIBUTED_DEBUG"),
        ("TORCH_FR_BUFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        ("NCCL_EXCLUDE_IB_HCA", ""),
        ("NCCL_NO_SUCH_THING", ""),
        ("NCCL_" + "X" * 10_000, ""),
    ],
)
def test_strangers(name: str, near: str) -> None:
    assert stranger(name) == near


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_DEBUG",
        "NCCL_IB_PKEY",
        "NCCL_TIMEOUT",
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_OFI_NCCL_VERSION",
        "NCCL_FASTRAK_CTRL_DEV",
        "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
        "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE",
        "NCCL_TUNER_CONFIG_PATH",
        "NCCL_NET_PLUGIN_TELEMETRY_MODE",
        "NCCL_PLUGIN_P2P",
        "NCCL_UCX_TLS",
        "NCCL_SHARP_DISABLE",
        "NCCL_INSPECTOR_ENABLE",
        "NCCL_CTRAN_ENABLE",
        "NCCL_VERSION",
        "NCCL_HOME",
        "NCCL_INCLUDE_DIRS",
        "NCCL_LIB_DIR",
        "NCCL_ROOT",
        "RCCL_DEBUG",
        "HCCL_SOCKET_IFNAME",
        "CCL_LOG_LEVEL",
        "UCX_TLS",
        "FI_PROVIDER",
        "TORCH_HOME",
        "TORCH_CUDA_ARCH_LIST",
        "TORCH_LOGS",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_DISTRIBUTED_BACKEND",
        "TORCH_NCCL_SOMETHING_NEW",
        "GLOO_SOMETHING_NEW",
        "NCCL",
        "PATH",
    ],
)
def test_not_strangers(name: str) -> None:
    assert stranger(name) is None


def test_looking_for_neighbours_is_quick() -> None:
    began = time.perf_counter()
    for number in range(50):
        nearest(f"NCCL_SOCKET_BUFFER_{number}_THRESHOLD")
    assert time.perf_counter() - began < 2.0


@pytest.mark.parametrize(
    ("text", "number", "rest"),
    [
        ("1", 1, ""),
        ("true", 0, "true"),
        ("4M", 4, "M"),
        ("010", 8, ""),
        ("08", 0, "8"),
        ("0x10", 16, ""),
        ("0x", 0, "x"),
        (" -2 ", -2, " "),
        ("+7", 7, ""),
        ('"1"', 0, '"1"'),
        ("", 0, ""),
    ],
)
def test_strtoll(text: str, number: int, rest: str) -> None:
    assert strtoll(text) == (number, rest)


MISREAD, RANGE, SYNTAX = Effect.MISREAD, Effect.RANGE, Effect.SYNTAX
REFUSED, HANGS, IMPORT = Effect.REFUSED, Effect.HANGS, Effect.IMPORT

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
        REFUSED: ("Collnet", "Ring, Tree", "auto"),
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
def test_reading(name: str, value: str, effect: Effect | None) -> None:
    found = reading(known()[name], value)
    assert (found.effect if found else None) is effect
    if found:
        assert found.means
        assert found.wants


@pytest.mark.parametrize("value", ["\0", "\ud800", "9" * (1 << 20), ",^" * (1 << 18), ";" * 99_999])
def test_hostile_values(value: str) -> None:
    for variable in known().values():
        reading(variable, value)
