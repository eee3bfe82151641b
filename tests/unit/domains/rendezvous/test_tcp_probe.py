"""Connections that are only tried."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from preflight.domains.rendezvous.tcp_probe import probe_ports, probe_repeatedly


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def test_knock_tells_open_from_closed_from_silent(server: socket.socket) -> None:
    # a listener whose queue is full does not answer
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        name = full.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(name)
        targets = [server.getsockname(), ("127.0.0.1", closed_port()), name]
        found = probe_ports(targets, 0.3)
        for filler in fillers:
            filler.close()
    assert [p.error for p in found] == ["", "ECONNREFUSED", "ETIMEDOUT"]
    assert [p.answered for p in found] == [True, True, False]
    assert 0.25 < found[2].seconds < 2.0


def test_knock_takes_addresses_only() -> None:
    assert (
        probe_ports([("localhost", 22), ("127.0.0.1", 0), ("", 9), ("127.0.0.1", 70000)], 0.2) == ()
    )
    assert probe_ports([("fe80::1%no-such-interface", 9)], 0.2)[0].error != ""


def test_one_port_is_tried_by_several_connections_at_once(server: socket.socket) -> None:
    found = probe_repeatedly(*server.getsockname(), 3, 1.0)
    assert [p.error for p in found] == ["", "", ""]
    assert [p.error for p in probe_repeatedly("127.0.0.1", closed_port(), 2, 1.0)] == [
        "ECONNREFUSED"
    ] * 2
    assert probe_repeatedly("n1", 1, 2, 1.0) == ()
