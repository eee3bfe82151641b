"""interface_rules: the interfaces that NCCL and Gloo take, by tables of rules and by odd input."""

from __future__ import annotations

import pytest

from preflight.domains.net.interface_rules import (
    ANY,
    IPV4,
    IPV6,
    gloo_address,
    gloo_choice,
    nccl_address,
    nccl_choice,
    nccl_family,
    nccl_rule,
)
from preflight.host import Address, Interface


def interface(name: str, *ips: str, running: bool = True, up: bool = True) -> Interface:
    addresses = tuple(
        Address(ip, 64 if ":" in ip else 24, IPV6 if ":" in ip else IPV4) for ip in ips
    )
    return Interface(name, up, running, name == "lo", 1500, addresses)


LO = interface("lo", "127.0.0.1", "::1")
ETH0 = interface("eth0", "192.0.2.2", "fd00::2")
ETH1 = interface("eth1", "198.51.100.2")
ETH10 = interface("eth10", "203.0.113.2")
IB0 = interface("ib0", "10.1.0.2")
DOCKER0 = interface("docker0", "172.17.0.1")
VIRBR0 = interface("virbr0", "192.168.122.1")
BRIDGE = interface("br-0123456789ab", "172.18.0.1")
ONLY6 = interface("v6only", "fd01::2")
DOWN = interface("eth2", "198.51.100.9", running=False)

HOST = (LO, ONLY6, ETH0, DOCKER0, ETH1, VIRBR0, ETH10, DOWN)

NCCL_CASES = (
    ("by itself: not docker, lo, virbr; IPv4 before IPv6", HOST, None, "eth0 eth1 eth10 v6only"),
    ("a network of docker is not called docker", (BRIDGE, ETH0), None, f"{BRIDGE.name} eth0"),
    ("ib first, and then nothing else", (LO, ETH0, IB0), None, "ib0"),
    ("docker before lo", (LO, VIRBR0, DOCKER0), None, "docker0"),
    ("lo before virbr", (VIRBR0, LO), None, "lo"),
    ("virbr at last", (VIRBR0,), None, "virbr0"),
    ("nothing", (), None, ""),
    ("a prefix", HOST, "eth", "eth0 eth1 eth10"),
    ("a name is a prefix too", HOST, "eth1", "eth1 eth10"),
    ("exactly", HOST, "=eth1", "eth1"),
    ("a list keeps the order of the interfaces", HOST, "=eth1,eth0", "eth0 eth1"),
    ("the sign counts once", HOST, "=eth1,=eth0", "eth1"),
    ("not", HOST, "^docker,lo,eth", "virbr0 v6only"),
    ("not exactly", HOST, "^=eth1,lo,docker0", "eth0 virbr0 eth10 v6only"),
    ("nothing is trimmed", HOST, "eth0, eth1", "eth0"),
    ("lo is taken when it is asked for", HOST, "lo", "lo"),
    ("no such name", HOST, "ens5", ""),
    ("an address is no name", HOST, "192.0.2.2", ""),
    ("down", HOST, "eth2", ""),
    ("one character is ignored", HOST, "e", "eth0 eth1 eth10 v6only"),
    ("empty", HOST, "", "eth0 eth1 eth10 v6only"),
    ("a lone caret is one character", HOST, "^", "eth0 eth1 eth10 v6only"),
    ("an excluded empty list excludes all", HOST, "^=", ""),
    ("an empty list admits all", HOST, "=,", "lo eth0 docker0 eth1 virbr0 eth10 v6only"),
    ("what follows a colon is a port", HOST, "=eth1:1", "eth1"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "host", "rule", "chosen"), NCCL_CASES, ids=lambda v: str(v)[:40])
def test_nccl(name: str, host: tuple[Interface, ...], rule: str | None, chosen: str) -> None:
    assert " ".join(i.name for i in nccl_choice(host, rule)) == chosen


def test_nccl_keeps_to_a_family() -> None:
    assert [i.name for i in nccl_choice(HOST, None, IPV6)] == ["v6only", "eth0"]
    assert [i.name for i in nccl_choice(HOST, "eth1", IPV6)] == []
    assert nccl_choice((LO,), None, IPV6) == ()  # ::1 is left out
    assert nccl_address(ETH0, IPV6) == Address("fd00::2", 64, IPV6)
    assert nccl_address(ETH0) == Address("192.0.2.2", 24, IPV4)
    assert nccl_address(ETH1, IPV6) is None
    assert (nccl_family("AF_INET6"), nccl_family("AF_INET")) == (IPV6, IPV4)
    assert nccl_family("inet6") == nccl_family(None) == ANY


def test_nccl_takes_sixteen_at_most() -> None:
    many = tuple(interface(f"eth{n}", f"10.0.{n}.1") for n in range(40))
    assert len(nccl_choice(many, None)) == 16
    assert nccl_choice(many, "=" + ",".join(f"eth{n}" for n in range(20, 40)))[-1].name == "eth35"


def test_a_hostile_rule_costs_nothing() -> None:
    assert nccl_choice(HOST, "," * (1 << 20)) != ()
    assert nccl_choice(HOST, "x" * (1 << 20)) == ()
    assert gloo_choice(HOST, "x," * (1 << 19)) == ()


def test_whether_a_name_was_meant() -> None:
    for text, meant in (("eth0", True), ("=eth0", True), ("eth", False), ("^eth0", False)):
        rule = nccl_rule(text)
        assert rule is not None
        assert rule.means("eth0") is meant
    assert nccl_rule("e") is None


GLOO_CASES = (
    ("one name", "eth1", None, "eth1"),
    ("several, in the order of the list", "eth1,eth0", None, "eth1 eth0"),
    ("no prefixes", "eth", None, ""),
    ("no signs", "=eth0", None, ""),
    ("no trimming", "eth0, eth1", None, ""),
    ("one that is missing spoils all", "eth0,ens5", None, ""),
    ("a comma at the end is nothing", "eth0,", None, "eth0"),
    ("one character is ignored", "e", ("198.51.100.2",), "eth1"),
    ("by the own name", None, ("198.51.100.2", "192.0.2.2"), "eth1"),
    ("the first that is here", None, ("8.8.8.8", "192.0.2.2"), "eth0"),
    ("Debian's 127.0.1.1", None, ("127.0.1.1",), "lo"),
    ("an own name that leads nowhere", None, (), "lo"),
    ("an own name that nobody asked for", None, None, ""),
)


@pytest.mark.parametrize(("name", "rule", "own", "chosen"), GLOO_CASES, ids=lambda v: str(v)[:40])
def test_gloo(name: str, rule: str | None, own: tuple[str, ...] | None, chosen: str) -> None:
    assert " ".join(i.name for i in gloo_choice(HOST, rule, own)) == chosen


def test_gloo_takes_the_first_address() -> None:
    assert gloo_address(ETH0) == Address("192.0.2.2", 24, IPV4)
    assert gloo_address(interface("eth3")) is None
