"""The address that each library would listen at on this node, and who never dials it."""

from __future__ import annotations

import socket

import pytest
from support.cases import context

from preflight.domains.net.interfaces import (
    GLOO,
    NCCL,
    ListenAddress,
    dialled_by_gloo,
    gloo_alone,
    listen_addresses,
    needs_none,
    never_dialled,
)
from preflight.host import Address, Host, Interface


class Three(Host):
    """A machine with two NICs."""

    interfaces = tuple(  # type: ignore[assignment]
        Interface(name, True, True, name == "lo", 1500, (Address(ip, 24, 4),))
        for name, ip in (("lo", "127.0.0.1"), ("eth0", "10.77.0.2"), ("eth1", "10.78.0.2"))
    )


@pytest.mark.parametrize(
    ("mine", "theirs", "never"),
    [
        ("10.0.0.1", "127.0.1.1", True),
        ("192.168.0.1", "127.0.1.1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("fe80::1", "127.0.1.1", False),
        ("10.0.0.1", "::1", False),
    ],
)
def test_in_gloo_the_greater_address_dials(mine: str, theirs: str, never: bool) -> None:
    near, far = ListenAddress(GLOO, "eth0", mine), ListenAddress(GLOO, "eth0", theirs)
    assert never_dialled(near, far) is never
    assert not never_dialled(None, far)


def at(ip: str, library: str = GLOO) -> tuple[ListenAddress, ...]:
    return (ListenAddress(library, "eth0", ip),)


THREE = {"a": at("10.0.0.1"), "b": at("10.0.0.9"), "c": at("10.0.0.10")}


def test_gloo_needs_no_connection_into_the_greatest_address() -> None:
    gloo, nodes = gloo_alone(THREE), list(THREE)
    assert dialled_by_gloo(gloo["c"], gloo["b"]), "by numbers, not as text"
    assert needs_none(gloo, [("a", "c"), ("b", "c")], nodes)
    assert needs_none(gloo, [("a", "b")], nodes)
    assert needs_none(gloo, [("a", "b"), ("a", "c")], nodes), "and none out of the smallest"
    assert not needs_none(gloo, [("a", "b"), ("c", "b")], nodes)
    assert not needs_none(gloo, [("b", "a")], nodes)
    assert not needs_none(gloo, [("a", "c"), ("c", "a")], nodes)


def test_of_what_is_not_known_gloo_may_need_it() -> None:
    gloo = gloo_alone(THREE)
    assert not needs_none(gloo, [("a", "c")], ["a", "b", "c", "d"])
    assert not needs_none(gloo, [], list(THREE))
    # of a large job only some edges are tested
    more = gloo | gloo_alone({"d": at("10.0.1.1")})
    assert not needs_none(more, [("a", "c"), ("b", "c")], list(more))
    assert gloo_alone(THREE | {"d": at("10.0.0.4", NCCL)}) == {}
    assert dialled_by_gloo(gloo["a"], ListenAddress(GLOO, "eth0", "fd00::1"))


def test_an_interface_that_is_named() -> None:
    found = listen_addresses(Host(environ={"GLOO_SOCKET_IFNAME": "lo"}), context())
    gloo = next(way for way in found.found if way.library == GLOO)
    assert (gloo.interface, gloo.ip) == ("lo", "127.0.0.1")
    assert gloo.mtu > 0


def test_all_interfaces_that_are_named() -> None:
    found = listen_addresses(Three(environ={"GLOO_SOCKET_IFNAME": "eth1,lo,eth0"}), context())
    ways = [(w.library, w.interface) for w in found.found if w.library != NCCL]
    assert ways == [(GLOO, "eth1"), ("Gloo-3", "eth0")]


def test_a_name_that_no_interface_has() -> None:
    found = listen_addresses(Host(environ={"GLOO_SOCKET_IFNAME": "nowhere0"}), context())
    assert [way for way in found.found if way.library == GLOO] == []


def test_by_its_name_this_node_has_the_address_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answer)
    found = listen_addresses(Host(environ={}), context())
    assert [(w.interface, w.ip) for w in found.found if w.library == GLOO] == [("lo", "127.0.1.1")]
    assert found.meeting == ""
