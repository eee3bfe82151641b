"""By which interface a machine sends to an address, and whether it drops the answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from preflight.domains.net import reverse_path as module
from preflight.domains.net.kernel_route import KernelRoute
from preflight.domains.net.reverse_path import (
    CONF,
    Detour,
    OutgoingWay,
    detour_of,
    detours,
    diversions,
    filtered,
    in_own_network,
    link_down,
    outgoing_way,
)
from preflight.host import Address, Host, Interface

ROUTES = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\tFEFF4D0A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    "eth1\t00004E0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    "eth0\t00004D0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    "eth1\t01004D0A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n"
)
"""10.77.0.0/16 on eth0 and 10.78.0.0/16 on eth1, and 10.77.0.1 by eth1."""


class Two(Host):
    """A machine that has 10.77.0.2 on eth0 and 10.78.0.2 on eth1, and sends from the first."""

    def source_of(self, ip: str) -> str:
        return "10.77.0.2"

    interfaces = (  # type: ignore[assignment]
        Interface("eth0", True, True, False, 1500, (Address("10.77.0.2", 16, 4),)),
        Interface("eth1", True, True, False, 1500, (Address("10.78.0.2", 16, 4),)),
    )


def two(folder: Path, filters: Mapping[str, int], routes: str = ROUTES) -> Host:
    (folder / "proc/net").mkdir(parents=True)
    (folder / "proc/net/route").write_text(routes)
    for name, number in filters.items():
        (folder / CONF[1:] / name).mkdir(parents=True)
        (folder / CONF[1:] / name / "rp_filter").write_text(f"{number}\n")
    return Two(str(folder), {})


@pytest.mark.parametrize(
    ("filters", "number", "dropped"),
    [
        ({"all": 0, "eth0": 1, "eth1": 0}, 1, True),
        ({"all": 1, "eth0": 0, "eth1": 0}, 1, True),
        ({"all": 1, "eth0": 2}, 2, False),
        ({"all": 0, "eth0": 0, "eth1": 1}, 0, False),
        ({}, 0, False),
    ],
)
def test_the_longest_route_and_the_stricter_filter(
    tmp_path: Path, filters: Mapping[str, int], number: int, dropped: bool
) -> None:
    way = outgoing_way(two(tmp_path, filters), "10.77.0.1")
    assert way == OutgoingWay("eth1", "eth0", number, beside="eth0")
    assert way.answers_are_dropped is dropped


@pytest.mark.parametrize("ip", ["10.77.0.3", "192.0.2.1"])
def test_a_route_by_the_interface_that_has_the_address(tmp_path: Path, ip: str) -> None:
    way = outgoing_way(two(tmp_path, {"all": 1}), ip)
    assert way == OutgoingWay("eth0", "eth0", 1)
    assert not way.answers_are_dropped


@pytest.mark.parametrize(
    ("filters", "dropped"),
    [({"all": 1}, True), ({"eth0": 1}, True), ({"eth1": 1}, False), ({"all": 2}, False)],
)
def test_a_part_of_its_subnet_to_which_it_sends_by_another_interface(
    tmp_path: Path, filters: Mapping[str, int], dropped: bool
) -> None:
    found = detours(two(tmp_path, filters))
    assert found == (Detour("10.77.0.1/32", "eth1", "eth0"),) * dropped
    assert (detour_of(found, "eth0", "10.77.0.1") is not None) is dropped
    assert detour_of(found, "eth0", "10.77.0.3") is None
    assert detour_of(found, "eth1", "10.77.0.1") is None


@pytest.mark.parametrize("ip", ["10.77.0.1", "10.77.0.3", "192.0.2.1"])
def test_what_it_sends_by_another_interface_that_is_not_of_that_network(
    tmp_path: Path, ip: str
) -> None:
    host = two(tmp_path, {})
    assert diversions(host, [(ip, "eth0")]) == (
        (Detour(f"{ip}/32", "eth1", "eth0"),) if ip == "10.77.0.1" else ()
    )
    assert len(diversions(host, [(ip, "eth1")])) == (ip == "192.0.2.1")


class Answers(Two):
    """The same, live: its kernel says this of every address."""

    interfaces = (  # type: ignore[assignment]
        *Two.interfaces,
        Interface("lo", True, True, True, 65536, (Address("10.77.0.9", 32, 4),)),
        Interface("br-5f3c9a1e77b2", True, True, False, 1500, (Address("10.77.4.1", 24, 4),)),
        Interface("br-lan", True, True, False, 1500, (Address("10.77.5.1", 24, 4),)),
        Interface("br-old", True, False, False, 1500, (Address("10.77.6.1", 24, 4),)),
    )


@pytest.mark.parametrize(
    ("ip", "answer", "found", "beside", "gateway"),
    [
        ("10.77.0.1", KernelRoute("eth0", 254), (), "", ""),
        (
            *("10.77.0.1", KernelRoute("eth0", 200, "10.77.255.250")),
            (Detour("10.77.0.1/32", "eth0", "eth0", 200, "10.77.255.250"),),
            *("", "10.77.255.250"),
        ),
        # another network has a router
        ("192.0.2.1", KernelRoute("eth0", 200, "10.77.255.250"), (), "", ""),
        (
            *("10.77.0.9", KernelRoute("lo", 255, local=True)),
            (Detour("10.77.0.9/32", "lo", "eth0", own=True),),
            *("eth0", ""),
        ),
        (
            *("10.77.4.4", KernelRoute("br-5f3c9a1e77b2", 254)),
            (Detour("10.77.4.4/32", "br-5f3c9a1e77b2", "eth0"),),
            *("eth0", ""),
        ),
        ("10.77.5.4", KernelRoute("br-lan", 254), (), "", ""),
        (
            *("10.77.6.4", KernelRoute("br-old", 254)),
            (Detour("10.77.6.4/32", "br-old", "eth0"),),
            *("eth0", ""),
        ),
    ],
)
def test_what_the_kernel_does_with_what_is_for_a_neighbour(
    monkeypatch: pytest.MonkeyPatch,
    ip: str,
    answer: KernelRoute,
    found: tuple[Detour, ...],
    beside: str,
    gateway: str,
) -> None:
    asked = []

    def kernel_route(ip: str, port: int, source: str) -> KernelRoute:
        asked.append(source)
        return answer

    monkeypatch.setattr(module, "kernel_route", kernel_route)
    host = Answers("/")
    assert diversions(host, [(ip, "eth0")]) == found
    way = outgoing_way(host, ip)
    assert way is not None
    assert (way.beside, way.gateway) == (beside, gateway)
    assert set(asked) == {"10.77.0.2"}


def test_further_tables_may_have_a_route_for_it(tmp_path: Path) -> None:
    host = two(tmp_path, {"all": 1})
    (tmp_path / "proc/net/fib_trie").write_text("Id 100:\n  +-- 0.0.0.0/0\n")
    assert detours(host) == ()


def test_what_cannot_be_told(tmp_path: Path) -> None:
    assert outgoing_way(two(tmp_path, {"all": 1}, "Iface\n"), "10.77.0.1") is None
    assert outgoing_way(two(tmp_path / "v6", {"all": 1}), "fd77::1") is None
    assert outgoing_way(two(tmp_path / "no", {"all": 1}), "no address") is None
    assert outgoing_way(Host(str(tmp_path), {}), "10.77.0.1") is None


class Three(Host):
    """A machine with an interface that has no link, and two in one network of which one has."""

    interfaces = (  # type: ignore[assignment]
        Interface("eth0", True, True, False, 1500, (Address("10.77.0.2", 16, 4),)),
        Interface("ib0", True, False, False, 4092, (Address("10.78.0.2", 16, 4),)),
        Interface("eth1", False, False, False, 1500, (Address("10.79.0.2", 24, 4),)),
        Interface("eth2", True, True, False, 1500, (Address("10.79.0.3", 24, 4),)),
        Interface("eth3", False, False, False, 1500, (Address("fd00::2", 64, 6),)),
        Interface("docker0", True, False, False, 1500, (Address("172.17.0.1", 16, 4),)),
    )


@pytest.mark.parametrize(
    ("ip", "nic"),
    [
        ("10.77.0.1", ""),
        ("10.78.0.1", "ib0"),
        ("10.78.0.2", ""),  # its own
        ("10.79.0.1", ""),
        ("10.80.0.1", ""),
        ("172.17.0.9", ""),  # a bridge without containers
        ("fd00::1", "eth3"),
        ("fd01::1", ""),
        ("no address", ""),
    ],
)
def test_an_interface_without_a_link_that_should_lead_there(
    tmp_path: Path, ip: str, nic: str
) -> None:
    assert link_down(Three(str(tmp_path), {}), ip) == nic


class OneSubnet(Host):
    """A machine with two NICs in 10.77.0.0/16, and one on a network of its own."""

    interfaces = (  # type: ignore[assignment]
        Interface("lo", True, True, True, 65536, (Address("127.0.0.1", 8, 4),)),
        Interface("eth0", True, True, False, 1500, (Address("10.77.0.2", 16, 4),)),
        Interface("eth1", True, True, False, 1500, (Address("10.77.1.2", 16, 4),)),
        Interface("eth2", True, True, False, 1500, (Address("10.78.0.2", 16, 4),)),
    )


BOTH = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "eth0\t00004D0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    "eth1\t00004D0A\t00000000\t0001\t0\t0\t100\t0000FFFF\t0\t0\t0\n"
    "eth2\t00004E0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
)


@pytest.mark.parametrize(
    ("strict", "tables", "dropping"),
    [
        ({"all": 1}, "", ("eth1",)),
        ({"all": 0, "eth1": 1}, "", ("eth1",)),
        ({"all": 1, "eth1": 2}, "", ()),
        ({"all": 0, "eth0": 1}, "", ()),
        ({}, "", ()),
        ({"all": 1}, "Id 101:\n  +-- 10.77.0.0/16 2 0 2\n", ()),  # each has a table of its own
    ],
)
def test_the_second_nic_of_a_subnet_drops_what_comes_in(
    tmp_path: Path, strict: Mapping[str, int], tables: str, dropping: tuple[str, ...]
) -> None:
    two(tmp_path, strict, BOTH)
    (tmp_path / "proc/net/fib_trie").write_text(f"Main:\n  +-- 0.0.0.0/0 3 0 5\n{tables}")
    assert filtered(OneSubnet(str(tmp_path), {})) == dropping


@pytest.mark.parametrize(
    ("ip", "near"), [("10.77.3.1", True), ("10.78.0.1", True), ("10.79.0.1", False), ("h", False)]
)
def test_an_address_of_an_own_network(tmp_path: Path, ip: str, near: bool) -> None:
    assert in_own_network(two(tmp_path, {}), ip) is near
