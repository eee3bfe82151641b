"""Conversations over TCP in one thread, and what the kernel says of a connection."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from preflight.domains.net.tcp import (
    NETSTAT,
    UNROUTED,
    ConversationLoop,
    Steps,
    acknowledged,
    asks_for_ecn,
    connect_error,
    errno_name,
    first_asks_for_ecn,
    listen_overflows,
    receive,
    reverse_path_drops,
    send,
    sockaddr,
    tcp_info,
    unacknowledged_bytes,
)
from preflight.host import Host


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        yield near, far


def run(*conversations: Callable[[list[Any]], Steps[None]], seconds: float = 5.0) -> list[Any]:
    """What the conversations noted, once each of them has noted something."""
    loop = ConversationLoop()
    seen: list[Any] = []
    for steps in conversations:
        loop.add(steps(seen))
    until = time.monotonic() + seconds
    while len(seen) < len(conversations) and time.monotonic() < until:
        loop.turn(0.02)
    loop.close()
    return seen


def test_two_ends_in_one_thread() -> None:
    data = bytes(range(256)) * 4096
    with connection() as (near, far):

        def sender(seen: list[Any]) -> Steps[None]:
            yield from send(near, data, 2.0)
            seen.append("sent")

        def receiver(seen: list[Any]) -> Steps[None]:
            seen.append((yield from receive(far, len(data), 2.0)))

        seen = run(sender, receiver)
    assert "sent" in seen
    assert data in seen


def test_a_wait_that_is_over_raises_where_it_waits() -> None:
    with connection() as (near, _):

        def steps(seen: list[Any]) -> Steps[None]:
            try:
                yield from receive(near, 1, 0.05)
            except TimeoutError:
                seen.append("late")

        assert run(steps) == ["late"]


def test_an_end_that_closes() -> None:
    with connection() as (near, far):
        far.close()

        def steps(seen: list[Any]) -> Steps[None]:
            try:
                yield from receive(near, 1, 1.0)
            except EOFError:
                seen.append("closed")

        assert run(steps) == ["closed"]


def test_what_the_kernel_knows_of_a_connection() -> None:
    with connection() as (near, _):
        near.sendall(b"x" * 100)
        time.sleep(0.05)
        info = tcp_info(near)
        assert info is not None, "every Linux that we run on has TCP_INFO"
        assert info.rtt > 0
        assert info.mtu > 0
        assert info.retransmits == 0
        assert info.sent == 1
        assert unacknowledged_bytes(near) == 0
    assert tcp_info(near) is None


def test_why_a_connection_failed() -> None:
    assert errno_name(OSError(errno.ECONNREFUSED, "")) == "ECONNREFUSED"
    assert errno_name(OSError(9999, "")) == "errno 9999"
    assert connect_error(OSError(errno.ECONNREFUSED, ""), "127.0.0.1") == "ECONNREFUSED"
    # there is a route to the loopback, so it was another machine that said so
    assert connect_error(OSError(errno.EHOSTUNREACH, ""), "127.0.0.1") == "EHOSTUNREACH"
    assert UNROUTED != "EHOSTUNREACH"


def test_the_scope_of_a_link_local_address() -> None:
    assert sockaddr("10.0.0.1", 5, "lo") == ("10.0.0.1", 5)
    assert sockaddr("2001:db8::1", 5, "lo") == ("2001:db8::1", 5, 0, 0)
    assert sockaddr("fe80::1", 5, "lo") == ("fe80::1", 5, 0, socket.if_nametoindex("lo"))


def test_full_listen_queues_are_counted(tmp_path: Path) -> None:
    host = Host(str(tmp_path), {})
    assert listen_overflows(host) == 0
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / NETSTAT[1:]).write_text(
        "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 17 18\n"
        "IpExt: InNoRoutes InTruncatedPkts\nIpExt: 0 0\n"
    )
    assert listen_overflows(host) == 17
    assert reverse_path_drops(host) == 0
    (tmp_path / NETSTAT[1:]).write_text("TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 0 9\n")
    assert reverse_path_drops(host) == 9
    (tmp_path / NETSTAT[1:]).write_text("TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0\n")
    assert listen_overflows(host) == 0


@pytest.mark.parametrize(
    ("asks", "again_without", "expected"),
    [("1", "0", True), ("1", "1", False), ("2", "0", False), ("0", "0", False), ("", "", False)],
)
def test_syns_that_ask_for_ecn_each_time(
    tmp_path: Path, asks: str, again_without: str, expected: bool
) -> None:
    folder = tmp_path / "proc/sys/net/ipv4"
    folder.mkdir(parents=True)
    (folder / "tcp_ecn").write_text(f"{asks}\n")
    (folder / "tcp_ecn_fallback").write_text(f"{again_without}\n")
    host = Host(str(tmp_path), {})
    assert asks_for_ecn(host) is expected
    assert first_asks_for_ecn(host) is (asks == "1")


def test_what_the_other_end_has_acknowledged() -> None:
    with connection() as (near, _):
        before, scaled = acknowledged(near) or (-1, False)
        near.send(bytes(1000))
        until = time.monotonic() + 5.0
        while (told := acknowledged(near)) and told[0] < before + 1000:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert told == (before + 1000, True)
        assert scaled
    assert acknowledged(near) is None
