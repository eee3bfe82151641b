"""dns: answers, errors and silence of a resolver as data; names that are read as numbers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from preflight.domains.net.dns import (
    NO_ANSWER,
    Lookup,
    LookupBatch,
    addresses,
    as_c10d,
    c10d_order,
    in_network,
    is_local,
    is_loopback,
    link_local,
    look_up,
    parse_ip,
    reads_as_number,
    search_domain,
    source_of,
)
from preflight.host import Host


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    """An event to wait for, set when the test is over so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()


def test_silence_costs_no_other_answer(hang: threading.Event) -> None:
    marks: list[str] = []
    inquiry = LookupBatch(time.monotonic() + 0.3, marks.append)
    inquiry.put("resolve a", "dead", lambda: ("1.2.3.4",) if hang.wait(30) else ())
    inquiry.put("resolve b", "gpu-1", lambda: ("10.0.0.1",))
    answers = {key: inquiry.take(key) for key in ("resolve a", "resolve b")}
    assert answers["resolve a"].error == NO_ANSWER
    assert 0.2 < answers["resolve a"].seconds < 5
    assert answers["resolve b"].found == ("10.0.0.1",)
    assert marks == [
        "resolve a 'dead'",
        "resolve b 'gpu-1'",
        "wait: resolve a 'dead'",
        "wait: resolve b 'gpu-1'",
    ]
    assert inquiry.again(answers)["resolve a"] == answers["resolve a"]


def test_a_second_try_counts_when_it_is_faster() -> None:
    delays = iter((0.1, 0.0))

    def question() -> tuple[str, ...]:
        time.sleep(next(delays))
        return ("10.0.0.1",)

    inquiry = LookupBatch(time.monotonic() + 30, lambda _: None)
    inquiry.put("x", "gpu-1", question)
    first = {"x": inquiry.take("x")}
    assert first["x"].seconds >= 0.1
    assert inquiry.again(first)["x"].seconds < 0.1


def test_a_second_try_that_hangs_takes_nothing_away(hang: threading.Event) -> None:
    tries = iter((True, False))
    inquiry = LookupBatch(time.monotonic() + 0.3, lambda _: None)
    inquiry.put("x", "gpu-1", lambda: ("10.0.0.1",) if next(tries) or hang.wait(30) else ())
    first = {"x": inquiry.take("x")}
    assert inquiry.again(first) == first


ERRORS = (
    (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "EAI_NONAME"),
    (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "EAI_AGAIN"),
    (socket.gaierror(-4711, "?"), "gai error -4711"),
    (OSError(5, "Input/output error"), "[Errno 5] Input/output error"),
    (ValueError("embedded null byte"), "embedded null byte"),
    (ValueError(), "ValueError"),
)


@pytest.mark.parametrize(("error", "shown"), ERRORS, ids=lambda v: str(v)[:30])
def test_errors_are_told_apart(error: Exception, shown: str) -> None:
    def fail() -> tuple[str, ...]:
        raise error

    assert look_up("x", fail, 30).error == shown


def test_our_own_mistakes_stay_loud() -> None:
    with pytest.raises(ZeroDivisionError):
        look_up("x", lambda: (str(1 // 0),), 30)


def test_the_live_resolver() -> None:
    host = Host()
    assert look_up("127.0.0.1", lambda: addresses(host, "127.0.0.1"), 30).found == ("127.0.0.1",)
    too_long = look_up("x" * 5000, lambda: addresses(host, "x" * 5000), 30)
    assert (too_long.error, too_long.found) == ("EAI_NONAME", ())


def test_names_are_asked_byte_for_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def answer(host: bytes, *_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0))] * 3

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    for name in ("gpu 1\r", "a..b", "gr\u00fcn", "\udcff"):
        assert addresses(Host(), name) == ("10.0.0.1",)
    assert asked == [b"gpu 1\r", b"a..b", "gr\u00fcn".encode(), b"\xff"]


def test_whose_an_address_is() -> None:
    host = Host()
    assert is_local(host, "127.0.0.1")
    assert not is_local(host, "203.0.113.77")
    assert source_of(host, "127.0.0.1") == "127.0.0.1"
    assert source_of(host, "not an address") == ""


def test_what_comes_back_is_bounded() -> None:
    found = look_up("x" * 5000, lambda: tuple(str(n) for n in range(5000)), 30)
    assert (len(found.name), len(found.found)) == (1025, 16)
    assert isinstance(found, Lookup)


NUMBERS = ("6841231", "05", "0x7f000001", "127.1", "010.0.0.1", "192.168.001.010", "1.2.3", "0")
NAMES = (
    "10.0.0.7",
    "10.0.0.07",
    "0.0.0.00",
    "gpu-1",
    "1a",
    "",
    "1.2.3.4.5",
    "::1",
    "0x",
    "1..2",
    "-1",
    "١٢٣",
)


def test_names_that_are_read_as_numbers() -> None:
    assert [n for n in NUMBERS if not reads_as_number(n)] == []
    assert [n for n in NAMES if reads_as_number(n)] == []
    assert not reads_as_number("1" * 1025)


def test_kinds_of_addresses() -> None:
    assert [
        ip for ip in ("127.0.1.1", "::1", "0.0.0.0", "10.0.0.1", "fe80::1") if is_loopback(ip)
    ] == [
        "127.0.1.1",
        "::1",
        "0.0.0.0",
    ]
    assert link_local("fe80::1%eth0")
    assert link_local("169.254.1.1")
    assert not link_local("fd00::1")
    assert as_c10d("10.0.0.1") == "::ffff:10.0.0.1"
    assert as_c10d("fd00::1") == "fd00::1"
    assert c10d_order(("10.0.0.2", "fd00::1", "10.0.0.1")) == ("fd00::1", "10.0.0.2", "10.0.0.1")
    assert str(parse_ip("fe80::1%eth0")) == "fe80::1"
    assert parse_ip("gpu-1") is None


@pytest.mark.parametrize(
    ("network", "ip", "inside"),
    [
        ("10.0.0.7/24", "10.0.0.9", True),
        ("10.0.0.7/24", "10.0.1.9", False),
        ("fd00::7/64", "fd00::9", True),
        ("fd00::7/64", "10.0.0.9", False),
        ("10.0.0.7/24", "n1", False),
        ("n1/24", "10.0.0.9", False),
    ],
)
def test_an_address_in_the_network_of_another(network: str, ip: str, inside: bool) -> None:
    assert in_network(network, ip) is inside


@pytest.mark.parametrize(
    ("typed", "full", "added"),
    [
        ("h1.train", "h1.train.apps.corp.example", ("apps.corp.example",)),
        ("h1", "H1.cluster.local.", ("cluster.local",)),
        ("h1.train.example", "h1.train.example", ()),
        ("h1.train.example", "lb7.cloud.example", ()),  # an alias
        ("10.0.0.1", "10.0.0.1", ()),
        ("h1", "", ()),
    ],
)
def test_a_search_domain_shows_in_the_full_name(
    typed: str, full: str, added: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "full_name", lambda self, name: full)
    assert search_domain(Host(), typed) == added
