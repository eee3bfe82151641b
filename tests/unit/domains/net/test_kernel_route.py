"""The route that the kernel takes, and by whose table."""

from __future__ import annotations

import pytest

from preflight.domains.net import kernel_route as module
from preflight.domains.net.kernel_route import KernelRoute, kernel_route
from preflight.domains.net.netlink import attribute


def test_the_loopback_is_reached_by_its_own_interface() -> None:
    told = kernel_route("127.0.0.1", 29500)
    assert told is not None
    assert told.interface == "lo"
    assert not told.by_rule
    assert told.local
    assert not told.gateway


@pytest.mark.parametrize("ip", ["", "h1", "10.0.0.1.1"])
def test_what_is_no_address_has_no_route(ip: str) -> None:
    assert kernel_route(ip) is None


@pytest.mark.parametrize(
    ("table", "by_rule"), [(0, False), (253, False), (254, False), (255, False), (51820, True)]
)
def test_a_table_that_only_a_rule_leads_to(
    monkeypatch: pytest.MonkeyPatch, table: int, by_rule: bool
) -> None:
    interface = attribute(module.OIF, (1).to_bytes(4, "little"))
    answer = bytes(12) + interface + attribute(module.TABLE, table.to_bytes(4, "little"))
    monkeypatch.setattr(module, "asked", lambda *_: answer)
    told = kernel_route("10.77.0.1")
    assert told == KernelRoute("lo", table)
    assert told.by_rule is by_rule


def test_a_router_and_the_address_that_it_sends_from(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    interface = attribute(module.OIF, (1).to_bytes(4, "little"))
    gateway = attribute(module.GATEWAY, bytes((10, 77, 255, 254)))
    monkeypatch.setattr(
        module, "asked", lambda *said: asked.append(said[2]) or bytes(12) + interface + gateway
    )
    assert kernel_route("10.77.0.1", source="10.77.0.2") == KernelRoute("lo", 0, "10.77.255.254")
    assert asked[0][2] == 32
    assert attribute(module.SRC, bytes((10, 77, 0, 2))) in asked[0]


def test_the_kernel_takes_the_address_that_it_sends_from() -> None:
    told = kernel_route("127.0.0.9", source="127.0.0.1")
    assert told is not None
    assert (told.interface, told.local) == ("lo", True)
    assert kernel_route("127.0.0.9", source="192.0.2.77") is None  # not its own


@pytest.mark.parametrize("answer", [b"", bytes(12), bytes(5)])
def test_no_answer_is_no_route(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(module, "asked", lambda *_: answer)
    assert kernel_route("10.77.0.1") is None
