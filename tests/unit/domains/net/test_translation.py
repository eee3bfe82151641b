"""Where NAT rules of this machine lead a connection, as connection tracking says."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from preflight.domains.net import translation
from preflight.domains.net.netlink import attribute
from preflight.domains.net.translation import answers_from, translated


def entry(ip: str, port: int) -> bytes:
    """A connection whose answers are awaited from there."""
    ends = attribute(1, socket.inet_pton(socket.AF_INET, ip))
    ports = attribute(1, b"\x06") + attribute(2, port.to_bytes(2, "big"))
    return attribute(0x8002, attribute(0x8001, ends) + attribute(0x8002, ports))


def test_who_is_to_answer() -> None:
    assert answers_from(entry("10.77.0.44", 29501), socket.AF_INET) == ("10.77.0.44", 29501)


@pytest.mark.parametrize("told", [b"", entry("10.77.0.44", 1)[:9], attribute(2, b"xx")])
def test_an_entry_that_says_nothing(told: bytes) -> None:
    assert answers_from(told, socket.AF_INET) is None


def test_who_answers_himself_is_not_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(translation, "asked", lambda *_: bytes(4) + entry("127.0.0.1", port))
        assert translated("127.0.0.1", port) is None
        monkeypatch.setattr(translation, "asked", lambda *_: bytes(4) + entry("10.77.0.44", port))
        assert translated("127.0.0.1", port) == ("10.77.0.44", port)
        monkeypatch.setattr(translation, "asked", lambda *_: b"")  # not root, or no such module
        assert translated("127.0.0.1", port) is None


def test_one_that_is_refused_is_known_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry is gone before it can be asked for."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    told: list[bytes] = []

    def noted(_: object, most: int) -> Iterator[bytes]:
        assert most == translation.EVENTS
        yield from told

    monkeypatch.setattr(translation, "asked", lambda *_: b"")
    monkeypatch.setattr(translation, "listener", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(translation, "told", noted)
    assert translated("127.0.0.1", port) is None
    original = translation._tuple
    header = struct.pack("!BBH", socket.AF_INET, 0, 0)

    def made(family: int, source: tuple[str, int], there: tuple[str, int]) -> bytes:
        mine = original(family, source, there)
        others = original(family, (source[0], source[1] ^ 1), there)
        told[:] = [b"", b"\2", header + others + entry("10.77.0.9", 1)]
        told.append(header + mine + entry("10.77.0.44", 29501))
        return mine

    monkeypatch.setattr(translation, "_tuple", made)
    assert translated("127.0.0.1", port) == ("10.77.0.44", 29501)


def test_no_address_is_not_translated() -> None:
    assert translated("h1", 1) is None
