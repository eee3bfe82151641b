"""The settings of one machine: what is kept of them, and which fast paths and watchdogs are off."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import round_trips

from preflight.domains.settings.collect import (
    Settings,
    collect_settings,
    fast_paths_off,
    watchdogs_off,
)
from preflight.domains.settings.nccl_conf import Variable
from preflight.host import Host


def look(host: Host) -> Settings:
    return collect_settings(host, lambda _: None)


def test_takes_device_files_for_gpus(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "kfd"):
        (tmp_path / "dev" / name).touch()
    seen = look(Host(str(tmp_path), {}))
    assert (seen.gpus, seen.amd) == (3, True)


def test_keeps_secrets_and_strangers_out(tmp_path: Path) -> None:
    environ = {
        "https_proxy": "http://ann:hunter2@proxy:3128",
        "NCCL_API_KEY": "hunter2",
        "TORCH_HUB_PRIVATE": "hunter2",
        "CCL_LOG_LEVEL": "hunter2",
        "MY_VARIABLE": "hunter2",
        "NCCL_TOPO_FILE": "\udcff",
    }
    seen = look(Host(str(tmp_path), environ))
    assert "hunter2" not in repr(seen)
    assert {v.name for v in seen.variables} == {"NCCL_API_KEY", "NCCL_TOPO_FILE"}
    assert seen.proxies == {"https_proxy": "http://***@proxy:3128"}
    round_trips(seen)


def named(**values: str) -> dict[str, Variable]:
    return {name: Variable(name, value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("values", "off"),
    [
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, ["TORCH_NCCL_ASYNC_ERROR_HANDLING"]),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_BLOCKING_WAIT": "1"}, []),
        ({"TORCH_NCCL_ENABLE_MONITORING": "no"}, []),
    ],
)
def test_watchdogs_off(values: dict[str, str], off: list[str]) -> None:
    assert [v.name for v in watchdogs_off(named(**values))] == off


@pytest.mark.parametrize(
    ("values", "several", "off"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, False, ["NCCL_P2P_DISABLE"]),
        (
            {"NCCL_P2P_LEVEL": "LOC", "NCCL_SHM_DISABLE": "1"},
            False,
            ["NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE"],
        ),
        ({"NCCL_IB_DISABLE": "1"}, True, ["NCCL_IB_DISABLE"]),
        ({"NCCL_IB_DISABLE": "1"}, False, []),
        ({"NCCL_NET": "Socket"}, True, ["NCCL_NET"]),
    ],
)
def test_fast_paths_off(values: dict[str, str], several: bool, off: list[str]) -> None:
    hardware = Settings((), gpus=8, models=("NVIDIA H100",), ethernet=("mlx5_0:1",))
    assert [v.name for v, _ in fast_paths_off(named(**values), hardware, several)] == off
