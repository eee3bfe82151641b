"""The address that each library would listen at on this node, and who never dials it."""

from __future__ import annotations

import socket

import pytest
from support.cases import context

from preflight.domains.net.interfaces import (
    GLOO,
    NCCL,
    ListenAddress,
    listen_addresses,
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
