"""What comes over the network is counted by thread; sockets work as without us."""

from __future__ import annotations

import socket
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_answers as answers

ME = threading.get_ident()


class Followed(socket.socket):
    """Python's sockets, as long as this test lasts."""


class Encrypted(socket.socket):
    def read(self, size: int = 1024) -> bytes:
        """As that of ssl."""
        return self.recv(size)


@pytest.fixture(autouse=True)
def none_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers.Answers, "got", {})
    monkeypatch.setattr(answers.Answers, "followed", set())
    monkeypatch.setitem(sys.modules, "ssl", SimpleNamespace(SSLSocket=None))
    for kind, name in ((Followed, "recv"), (Followed, "recv_into"), (Encrypted, "read")):
        monkeypatch.setattr(kind, name, getattr(kind, name))
    for _ in range(2):
        answers.follow(Followed, "recv", "recv_into", "none")


def connected(kind: Any = Followed) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = kind(socket.AF_INET)
        here.connect(server.getsockname())
        return here, server.accept()[0]


def test_what_comes_is_counted_and_its_end_is_not() -> None:
    here, there = connected()
    there.sendall(b"abc")
    assert here.recv(2) == b"ab"
    buffer = bytearray(4)
    assert here.recv_into(buffer, 4) == 1
    assert answers.told(ME) == 2
    there.close()
    assert here.recv(2) == b""
    assert answers.told(ME) == 2
    assert answers.told(ME + 1) == 0
    here.close()


def test_who_gets_nothing() -> None:
    here, there = connected()
    here.settimeout(0.01)
    with pytest.raises(TimeoutError):
        here.recv(1)
    with pytest.raises(TypeError):
        here.recv()  # type: ignore[call-arg]
    assert answers.told(ME) == 0
    here.close()
    there.close()


def test_what_comes_from_this_machine_alone_is_not_counted() -> None:
    one, other = socket.socketpair()
    followed = Followed(fileno=one.detach())
    other.sendall(b"abc")
    assert followed.recv(3) == b"abc"
    assert answers.told(ME) == 0
    followed.close()
    other.close()


def test_another_thread_is_another_one() -> None:
    here, there = connected()
    there.sendall(b"abc")
    got: list[int] = []

    def receive() -> None:
        here.recv(3)
        got.append(threading.get_ident())

    thread = threading.Thread(target=receive)
    thread.start()
    thread.join()
    assert answers.told(ME) == 0
    assert answers.told(got[0]) == 1
    here.close()
    there.close()


def test_what_is_encrypted_is_counted_once_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = connected(Encrypted)
    there.sendall(b"abc")
    monkeypatch.setitem(sys.modules, "ssl", SimpleNamespace(SSLSocket=Encrypted))
    assert answers.told(ME) == 0
    assert here.read(3) == b"abc"  # type: ignore[attr-defined]
    assert answers.told(ME) == 1
    here.close()
    there.close()
