"""The tables of known variables: which names are known, and what is near an unknown one."""

from __future__ import annotations

import time

import pytest

from preflight.domains.settings.parsers import READERS, find_bad_value
from preflight.domains.settings.variables import (
    NCCL_UNDOCUMENTED,
    RENAMED,
    known_variables,
    nearest_name,
    unknown_name,
    unread_names,
)


def test_tables_are_sound() -> None:
    assert len(known_variables()) > 300
    for variable in known_variables().values():
        assert variable.kind in READERS, variable
        find_bad_value(variable, "")  # the arguments are what the kind's reader takes
        find_bad_value(variable, "1")
    assert not set(unread_names()) & set(known_variables())
    assert all(instead for instead in unread_names().values())
    names = NCCL_UNDOCUMENTED.split()
    assert len(names) == len(set(names))
    assert all(known_variables()["NCCL_" + name].kind == "any" for name in names)
    assert set(RENAMED.values()) <= set(known_variables())


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
    assert unknown_name(name) == near


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
    assert unknown_name(name) is None


def test_looking_for_neighbours_is_quick() -> None:
    began = time.process_time()
    for number in range(50):
        nearest_name(f"NCCL_SOCKET_BUFFER_{number}_THRESHOLD")
    assert time.process_time() - began < 2.0
