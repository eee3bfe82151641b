"""Bytes between two nodes: what is measured, and that whoever is at the other end can cost no more
than the time that he is given."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable

import pytest

from preflight.domains.net import tcp_throughput
from preflight.domains.net.tcp_throughput import Burst, Transfer
from preflight.host import Host


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def echo_pings(line: socket.socket, pause: float = 0.0) -> int:
    """How many there were."""
    count, ping = 0, b""
    while ping != tcp_throughput.LAST:
        ping = line.recv(tcp_throughput.PING, socket.MSG_WAITALL)
        time.sleep(pause)
        line.sendall(ping)
        count += 1
    return count


def test_both_ends_measure_what_comes_in() -> None:
    with listening() as at:
        until = time.monotonic() + 8
        answers: list[Transfer] = []
        answering = threading.Thread(
            target=lambda: answers.append(tcp_throughput.answer(Host(), at, "hello", until))
        )
        answering.start()
        dialled = tcp_throughput.dial(Host(), "127.0.0.1", at.getsockname()[1], "hello", until)
        answering.join(10)
    for moved in (dialled, answers[0]):
        assert moved.error == ""
        assert moved.inward is not None
        assert moved.inward.rate > 1e6
        assert moved.inward.sent > moved.inward.resent >= 0
    assert dialled.latency is not None
    assert dialled.typical is not None
    assert 0 < dialled.latency <= dialled.typical
    assert answers[0].latency is None


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"x y z\n", b"nan 1 1\n", b"inf 5 1\n", b"-1 5 1\n", b"0.1 1 5\n", b"0.1 5\n"],
)
def test_a_last_line_that_makes_no_sense_says_nothing(line: bytes) -> None:
    assert tcp_throughput._trailer(bytes(30) + line) == (0.0, 0, 0)


def test_the_last_line() -> None:
    assert tcp_throughput._trailer(bytes(30) + b"0.250 4000 12\n") == (0.25, 4000, 12)


def test_waiting_for_a_cpu_is_not_the_networks_fault() -> None:
    assert Burst(1e8, starved=0.5).able == pytest.approx(2e8)
    assert Burst(1e8, starved=0.0).able == 1e8
    for nonsense in (7.0, -3.0, math.inf):
        assert 1e8 <= Burst(1e8, starved=nonsense).able < 2.1e9


def test_a_stranger_at_the_listener_is_sent_away() -> None:
    with listening() as at:
        strangers = [socket.create_connection(at.getsockname()) for _ in range(2)]
        strangers[0].sendall(b"GET / HTTP/1.1\r\n" + b"x" * 100)  # the other one says nothing
        until = time.monotonic() + 8
        answers: list[Transfer] = []
        answering = threading.Thread(
            target=lambda: answers.append(tcp_throughput.answer(Host(), at, "our hello", until))
        )
        answering.start()
        moved = tcp_throughput.dial(Host(), "127.0.0.1", at.getsockname()[1], "our hello", until)
        answering.join(10)
        for stranger in strangers:
            stranger.close()
    assert (moved.error, answers[0].error) == ("", "")


def test_a_partner_that_falls_silent_costs_its_time_only() -> None:
    with listening() as at:
        began = time.monotonic()
        moved = tcp_throughput.dial(Host(), "127.0.0.1", at.getsockname()[1], "hello", began + 0.3)
        assert time.monotonic() - began < 2
        answered = tcp_throughput.answer(Host(), at, "another hello", time.monotonic() + 0.3)
    assert (moved.inward, moved.error) == (None, "ETIMEDOUT")
    assert answered.error == "ETIMEDOUT"


def test_a_refusal_has_its_name() -> None:
    with listening() as at:
        port = at.getsockname()[1]
    moved = tcp_throughput.dial(Host(), "127.0.0.1", port, "hello", time.monotonic() + 1)
    assert moved.error == "ECONNREFUSED"


def dialled(feed: Callable[[socket.socket], None], seconds: float = 8.0) -> Transfer:
    """What the end that dials has measured, where the other one does this."""

    def answer() -> None:
        line, _ = at.accept()
        with line:
            feed(line)

    with listening() as at:
        answering = threading.Thread(target=answer)
        answering.start()
        until = time.monotonic() + seconds
        moved = tcp_throughput.dial(Host(), "127.0.0.1", at.getsockname()[1], "hello", until)
        answering.join(10)
    return moved


def test_a_burst_that_breaks_off_is_a_measurement() -> None:
    def feed(line: socket.socket) -> None:
        echo_pings(line)
        while line.recv(1 << 16)[-1:] == b"\0":
            pass
        for _ in range(10):
            line.sendall(bytes(1000))
            time.sleep(0.01)

    moved = dialled(feed)
    assert moved.error == "ECONNRESET"
    assert moved.inward is not None
    assert 10_000 < moved.inward.rate < 1e6


def test_a_burst_that_stops_says_when_and_after_how_many_bytes() -> None:
    def feed(line: socket.socket) -> None:
        echo_pings(line)
        while line.recv(1 << 16)[-1:] == b"\0":
            pass
        line.sendall(bytes(100_000))
        time.sleep(1.5)

    moved = dialled(feed, seconds=1.2)
    assert (moved.error, moved.came) == ("ETIMEDOUT", 100_000)
    assert 0.6 < moved.still < 1.2


def test_a_long_way_costs_fewer_pings() -> None:
    counts: list[int] = []
    moved = dialled(lambda line: counts.append(echo_pings(line, 0.06)))
    assert counts[0] < 1 + tcp_throughput.PINGS
    assert moved.latency is not None
    assert moved.latency >= 0.06


@pytest.mark.parametrize(("trip", "seconds"), [(0.0, 0.05), (0.02, 0.2), (3.0, 0.25)])
def test_a_burst_takes_ten_round_trips(trip: float, seconds: float) -> None:
    assert tcp_throughput.burst_seconds(trip) == pytest.approx(seconds)


def test_the_start_of_tcp() -> None:
    assert tcp_throughput.rate_of_start(0.05) == pytest.approx(31 * 14480 / 0.25)
    assert tcp_throughput.rate_of_start(0.25) == pytest.approx(14480 / 0.25)
    assert tcp_throughput.rate_of_start(0.0) == tcp_throughput.rate_of_start(1e-9) > 2e8
    assert 0 < tcp_throughput.rate_of_start(3.0) < 1e5


def test_a_long_way_has_longer_bursts() -> None:
    """Else a fast network looks slow, since TCP needs some round trips to get fast."""
    took: list[float] = []

    def feed(line: socket.socket) -> None:
        echo_pings(line, 0.015)
        began, tail = time.monotonic(), b""
        while not tail.endswith(b"\n"):
            tail = line.recv(1 << 20)[-1:]
        took.append(time.monotonic() - began)

    dialled(feed, seconds=2.0)
    assert took[0] >= 0.14
