"""What a report says of each node, by the fields that the checks have; of anything else nothing."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.baseline import facts
from preflight.baseline.learn import SOURCES
from preflight.checks.agree_hardware import Hardware
from preflight.checks.env_vars import Settings
from preflight.checks.gpu_health import Health
from preflight.checks.gpu_links import GpuLinks
from preflight.checks.gpu_visible import Visible
from preflight.checks.host_cpu import Cpus
from preflight.checks.host_limits import ProcessLimits
from preflight.checks.host_software import TorchSoftware
from preflight.checks.net_interface import Choices
from preflight.checks.net_speed import Speed
from preflight.domains.net.hca_selection import NodeRdma

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["answer", "gpus", "name", "count", "build", "version", "memlock", "ip"]
            )
            | st.sampled_from(
                ["interfaces", "addresses", "speeds", "variables", "proxies", "files"]
            )
            | st.sampled_from(["told", "joined", "lanes", "pairs", "ports", "fabric", "active"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)  # the first one loads what the others have
@given(st.sampled_from(list(facts.READERS)), JSON)
def test_any_observation_is_read_or_says_nothing(check: str, value: Any) -> None:
    said = facts.facts(check, value)
    assert all(isinstance(text, str) and text for text in said.values())
    for source in SOURCES.values():
        assert isinstance(source.read(value), (str, int, float, type(None)))


EXAMPLES: Mapping[str, tuple[type, Any]] = {
    "host.software": (
        TorchSoftware,
        {
            "python": "3.11.9",
            "build": {"version": "2.13.0", "folder": "/venv/torch", "cuda": "12.8"},
            "loaded": {"path": "/venv/libnccl.so.2", "version": "2.27.5"},
            "driver": "570.1",
        },
    ),
    "gpu.visible": (
        Visible,
        {"answer": {"count": 1, "cuda": "12.8", "gpus": [{"name": "NVIDIA L4", "memory": 1}]}},
    ),
    "gpu.health": (
        Health,
        {
            "told": {
                "gpus": [
                    {"width": 16, "aggregate": 0, "rows": 2, "persistent": True}
                    | {"fabric": {"state": 3}}
                ]
            }
        },
    ),
    "gpu.links": (
        GpuLinks,
        {
            "make": "NVIDIA",
            "joined": {
                "gpus": [
                    {"bus": "a", "iommu": "DMA", "lanes": [{"active": True, "remote": "b"}]},
                    {"bus": "b", "iommu": "DMA", "lanes": [{"active": False, "remote": "a"}]},
                ],
                "pairs": [{"read": 0, "write": 0}],
            },
        },
    ),
    "net.rdma": (
        NodeRdma,
        {
            "ports": [
                {"device": "mlx5_0", "number": 1, "layer": "InfiniBand", "state": 4, "rate": 400.0}
                | {"width": "4X NDR", "mtu": 0, "firmware": "28.39.1002"}
            ],
            "peering": True,
        },
    ),
    "env.vars": (
        Settings,
        {
            "variables": [{"name": "NCCL_DEBUG", "value": "INFO", "file": ""}],
            "proxies": {"http_proxy": "p:1"},
        },
    ),
    "host.limits": (ProcessLimits, {"memlock": -1, "files": 9, "shm_size": 1}),
    "host.cpu": (Cpus, {"usable": 4, "online": 8, "quota": 2.5}),
    "net.interface": (
        Choices,
        {
            "interfaces": [
                {
                    "name": "eth0",
                    "running": True,
                    "loopback": False,
                    "mtu": 9000,
                    "addresses": [{"ip": "10.0.0.7", "prefix": 24, "family": 4}],
                }
            ]
        },
    ),
    "agree.hardware": (Hardware, {"speeds": {"eth0": 100000}}),
}
"""What each check's answer holds of that which is read."""


def misplaced(kind: Any, value: Any) -> list[str]:
    """The fields of `value` that the dataclass `kind`, or what is in it, does not have."""
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        inner = [misplaced(hints[name], v) for name, v in value.items() if name in hints]
        return [name for name in value if name not in hints] + [n for some in inner for n in some]
    inside = [arg for arg in typing.get_args(kind) if dataclasses.is_dataclass(arg)]
    one = value[0] if isinstance(value, list) else value
    return misplaced(inside[0], one) if inside else []


NAMES_OF_FACTS = {
    "host.software": {
        *("torch", "torch from", "CUDA of torch", "NVIDIA driver", "Python", "NCCL", "NCCL from")
    },
    "gpu.visible": {"models", "memory", "CUDA of the driver"},
    "gpu.health": {
        *("PCIe lanes", "memory errors ever", "memory put out of use"),
        *("persistence mode", "in an NVSwitch fabric"),
    },
    "gpu.links": {"NVLink lanes per GPU", "NVLink lanes per pair", "pairs with P2P", "IOMMU"},
    "net.rdma": {"mlx5_0:1", "mlx5_0 firmware", "HCAs reach into GPU memory"},
    "env.vars": {"NCCL_DEBUG", "http_proxy"},
    "host.limits": {"locked memory", "open files", "/dev/shm"},
    "host.cpu": {"CPUs", "CPUs given", "CPU quota"},
    "net.interface": {"eth0"},
    "agree.hardware": {"eth0 speed"},
}


@pytest.mark.parametrize("check", list(facts.READERS))
def test_the_fields_that_are_read_are_those_of_the_checks(check: str) -> None:
    """A field that a check gives another name is missed here first."""
    kind, value = EXAMPLES[check]
    assert misplaced(kind, value) == []
    assert {name for _, name in facts.facts(check, value)} == NAMES_OF_FACTS[check]


def test_a_misplaced_field_is_seen() -> None:
    wrong = {"answer": {"gpus": [{"nom": 1}]}, "tasks": 1}
    assert misplaced(Visible, wrong) == ["nom"]


def test_where_a_rate_stands_in_an_observation() -> None:
    value = {"trials": [{"peer": 1, "moved": {"inward": {"rate": 1.25e8}}}]}
    assert misplaced(Speed, value) == []
    assert SOURCES["tcp_gbits"].read(value) == 1.0


def said(check: str, value: Any) -> dict[str, str]:
    return {name: text for (_, name), text in facts.facts(check, value).items()}


def test_gpus_that_are_alike_are_counted() -> None:
    """Which GPU is which is not kept: a node that came back from repair may number them again."""
    lanes = [{"active": n < 17, "remote": "switch"} for n in range(18)]
    whole = [{"active": True, "remote": "switch"}] * 18
    gpus = [{"bus": str(i), "lanes": lanes if i == 5 else whole} for i in range(8)]
    pairs = [{"read": int(i == 0), "write": 0} for i in range(28)] + [{"read": None, "write": 0}]
    found = said("gpu.links", {"joined": {"gpus": gpus, "pairs": pairs}})
    assert found == {"NVLink lanes per GPU": "7 x 18, 1 x 17", "pairs with P2P": "27 of 28"}
    four = [
        {"bus": bus, "lanes": [{"active": True, "remote": r} for r in "abcd" if r != bus]}
        for bus in "abcd"
    ]
    amd = said("gpu.links", {"make": "AMD", "joined": {"gpus": four}})
    assert amd == {"XGMI links per GPU": "4 x 3", "XGMI links per pair": "6 x 1"}


def test_what_differs_from_day_to_day_is_no_fact() -> None:
    well = {"width": 16, "aggregate": 3, "rows": 0, "persistent": False}
    today = {"temperature": 60, "volatile": 1, "used": 9, "brakes": 8, "processes": [{"pid": 1}]}
    one, other = ({"told": {"gpus": [well | more] * 2}} for more in ({}, today))
    assert said("gpu.health", one) == said("gpu.health", other)
    assert said("gpu.health", one)["memory errors ever"] == "6"
    ports = [{"device": "mlx5_0", "number": 1, "layer": "Ethernet", "state": 4, "rate": 100}]
    grown = [ports[0] | {"grown": {"symbol_error": 5}, "gids": [{"address": "::1"}]}]
    assert said("net.rdma", {"ports": ports}) == said("net.rdma", {"ports": grown})
    assert said("net.rdma", {"ports": ports}) == {"mlx5_0:1": "100 Gb/s Ethernet active"}
