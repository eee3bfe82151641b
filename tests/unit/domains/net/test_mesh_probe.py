"""Nodes that dial each other on real sockets: what comes back of each edge, and how soon."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cases import context
from support.relay import Relay, together

from preflight.domains.net import mesh_probe, pairing
from preflight.domains.net.interfaces import GLOO, NCCL, ListenAddress
from preflight.domains.net.mesh_probe import Dialled, Edge, MeshPeer
from preflight.model import CannotObserve


def way(number: int, library: str = GLOO) -> ListenAddress:
    return ListenAddress(library, "lo", f"127.0.0.{number + 2}")


def party(number: int, relay: Relay, *ways: ListenAddress, seconds: float = 12.0) -> MeshPeer:
    ctx = context(
        rank=number,
        world_size=relay.count,
        seconds=seconds,
        peers=relay.peers(number),
    )
    return MeshPeer(ctx, ways or (way(number),))


def meet(relay: Relay, *ways: ListenAddress, seconds: float = 12.0) -> list[list[Dialled]]:
    def one(number: int) -> list[Dialled]:
        with party(number, relay, *ways, seconds=seconds) as mine:
            return mine.meet()

    return together(relay.count, one)


def results(met: list[list[Dialled]]) -> dict[tuple[int, int], str]:
    return {(number, d.edge.to): d.edge.result for number, all_ in enumerate(met) for d in all_}


def test_all_reach_each_other_and_are_done_at_once() -> None:
    began = time.monotonic()
    met = meet(Relay(4))
    assert time.monotonic() - began < 2.0
    found = results(met)
    assert found == {(a, b): "ok" for a in range(4) for b in range(4) if a != b}
    for dialled in (d for all_ in met for d in all_):
        assert dialled.edge.seconds < 0.5
        assert dialled.edge.source == ""  # the dialler's own socket has that address, too
        assert dialled.edge.libraries == "Gloo"


def test_alone_there_is_nobody_to_dial() -> None:
    assert meet(Relay(1)) == [[]]


def test_above_64_nodes_each_dials_some() -> None:
    met = meet(Relay(66))
    found = results(met)
    assert set(found.values()) == {"ok"}
    assert 66 * 6 < len(found) == pairing.edges(66) <= 66 * 7


def test_the_same_address_for_both_libraries_is_dialled_once() -> None:
    def one(number: int) -> list[Dialled]:
        both = (way(number, NCCL), way(number, GLOO))
        # the third node's Gloo has an address of its own
        ways = both if number < 2 else (both[0], ListenAddress(GLOO, "lo", "127.0.1.9"))
        with party(number, relay, *ways) as mine:
            return mine.meet()

    relay = Relay(3)
    first = together(3, one)[0]
    assert sorted((d.edge.to, d.edge.libraries, d.edge.result) for d in first) == [
        (1, "NCCL+Gloo", "ok"),
        (2, "Gloo", "ok"),
        (2, "NCCL", "ok"),
    ]


@contextmanager
def listener(ip: str, answer: Callable[[socket.socket], None] | None) -> Iterator[int]:
    """Something that accepts connections; closes them after `answer`, or holds them without one."""
    held: list[socket.socket] = []
    with socket.create_server((ip, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    conn, _ = server.accept()
                except OSError:
                    return
                if answer is None:
                    held.append(conn)
                    continue
                with conn:
                    answer(conn)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    for conn in held:
        conn.close()


def pointing(at: int, port: int, ip: str = "") -> Callable[[int, str, Any], Any]:
    """Node `at` tells another port than its own, as a proxy before it would."""

    def tamper(number: int, topic: str, value: Any) -> Any:
        if topic == "listen" and number == at:
            return {**value, "ways": [[w, ip or a, port] for w, a, _ in value["ways"]]}
        return value

    return tamper


def into(node: int, met: list[list[Dialled]]) -> list[Edge]:
    found = [d.edge for all_ in met for d in all_]
    assert all(e.result == "ok" for e in found if e.to != node), "an innocent one is accused"
    return [e for e in found if e.to == node]


def closed_port(ip: str) -> int:
    with socket.create_server((ip, 0)) as server:
        return int(server.getsockname()[1])


def test_a_dead_listener_refuses() -> None:
    met = meet(Relay(3, pointing(1, closed_port("127.0.0.3"))))
    assert [e.result for e in into(1, met)] == ["ECONNREFUSED"] * 2


def test_who_accepts_and_says_nothing_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_probe, "ANSWERED", 0.4)
    with listener("127.0.0.3", None) as port:
        began = time.monotonic()
        met = meet(Relay(4, pointing(1, port)))
        assert time.monotonic() - began < 2.5  # three edges, but one wait
    assert [e.result for e in into(1, met)] == ["silent"] * 3


def test_who_accepts_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    with listener("127.0.0.3", lambda conn: None) as port:
        met = meet(Relay(3, pointing(1, port)))
    assert {e.result for e in into(1, met)} <= {"closed", "ECONNRESET"}


def test_an_echo_is_not_the_one_who_was_meant() -> None:
    def echo(conn: socket.socket) -> None:
        data = b""
        while len(data) < mesh_probe.HELLO.size:
            data += conn.recv(4096)
        conn.sendall((data * 2)[: mesh_probe.ANSWER.size])

    with listener("127.0.0.3", echo) as port:
        met = meet(Relay(3, pointing(1, port)))
    assert [(e.result, e.answered) for e in into(1, met)] == [("wrong machine", None)] * 2


def test_another_node_answers_and_is_named() -> None:
    """Node 1 tells node 2's port: two machines with one address, or a translation that errs."""
    told: dict[int, Any] = {}
    ready = threading.Event()

    def tamper(number: int, topic: str, value: Any) -> Any:
        if topic == "listen" and number == 2:
            told[2] = value["ways"]
            ready.set()
        if topic == "listen" and number == 1:
            assert ready.wait(5)
            return {**value, "ways": told[2]}
        return value

    met = meet(Relay(3, tamper))
    assert [(e.result, e.answered) for e in into(1, met)] == [("wrong machine", 2)] * 2


def test_nobody_answers_where_packets_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener whose queue is full drops what comes, as a firewall does."""
    monkeypatch.setattr(mesh_probe, "CONNECT", 0.4)
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.3", 0))
        full.listen(0)
        for sock in (first, second):
            sock.setblocking(False)
            assert sock.connect_ex(full.getsockname()) in (0, errno.EINPROGRESS)
        met = meet(Relay(3, pointing(1, full.getsockname()[1])))
    found = into(1, met)
    assert [e.result for e in found] == ["timed out"] * 2
    assert all(e.seconds >= 0.4 for e in found)


def test_who_never_says_where_it_listens_is_not_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_probe, "PATIENCE", 0.5)
    relay = Relay(3)

    def one(number: int) -> list[Dialled]:
        if number == 2:
            return []
        with party(number, relay, seconds=3.0) as mine:
            return mine.meet()

    began = time.monotonic()
    met = together(3, one)
    assert 1.5 < time.monotonic() - began < 3.0, "served until the end, and not longer"
    assert results(met) == {(0, 1): "ok", (1, 0): "ok"}


def test_who_has_nothing_to_dial_keeps_nobody_waiting() -> None:
    relay = Relay(3)

    def one(number: int) -> list[Dialled]:
        if number == 2:
            party(number, relay, way(2)).decline()
            return []
        with party(number, relay) as mine:
            return mine.meet()

    began = time.monotonic()
    assert results(together(3, one)) == {(0, 1): "ok", (1, 0): "ok"}
    assert time.monotonic() - began < 2.0


def test_an_address_that_is_not_ours() -> None:
    relay = Relay(2)
    with (
        pytest.raises(CannotObserve, match=r"192\.0\.2\.1"),
        party(0, relay, ListenAddress(GLOO, "eth0", "192.0.2.1")),
    ):
        pass
    assert relay.said[1, "listen"][0]["ways"] == []
    assert 0 in relay.said[1, "done"]


@pytest.mark.parametrize(
    "told",
    [
        None,
        7,
        {},
        {"nonce": "zz", "ways": []},
        {"nonce": "00" * 16, "ways": [["Gloo", "no address", 5]]},
        {"nonce": "00" * 16, "ways": [["Gloo", "127.0.0.1", 70000]]},
        {"nonce": "00" * 16, "ways": [["Gloo", "127.0.0.1"]]},
        {"nonce": "00" * 16, "ways": {"Gloo": 1}},
        {"nonce": "00", "ways": [["Gloo", "127.0.0.1", 5]]},
        {"nonce": "00" * 16, "ways": [["other", "127.0.0.1", 5]]},
    ],
)
def test_what_another_node_says_is_a_strangers_word(told: Any) -> None:
    def tamper(number: int, topic: str, value: Any) -> Any:
        return told if topic == "listen" and number == 1 else value

    met = meet(Relay(2, tamper))
    assert results(met) == {(1, 0): "ok"}


def test_strangers_at_the_listener_disturb_nobody() -> None:
    relay = Relay(2)

    def one(number: int) -> list[Dialled]:
        if number == 0:
            told = relay.peers(0).hear("listen", 1, 5.0)[1]
            (_, ip, port) = told["ways"][0]
            for text in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4096):
                with socket.create_connection((ip, port), 5) as stranger:
                    stranger.sendall(text)
        with party(number, relay) as mine:
            return mine.meet()

    assert results(together(2, one)) == {(0, 1): "ok", (1, 0): "ok"}


def test_all_connections_at_once() -> None:
    relay = Relay(3)

    def one(number: int) -> list[Dialled]:
        with party(number, relay) as mine:
            fine = [d.target for d in mine.meet()]
            return mine.burst(fine, 8)

    for opened in together(3, one):
        assert len(opened) == 16
        assert {d.edge.result for d in opened} == {"ok"}
