"""A crash is held until everybody has been asked, and no longer; whatever else comes over its line
holds nobody."""

from __future__ import annotations

import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.rehearsal import client, crashes
from preflight.rehearsal.crashes import Crashes

CRASH = """
import faulthandler, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
line.connect(sys.argv[1])
line.sendall(b"%d\\n" % os.getpid())
faulthandler.enable(line)
def here():
    os.abort()
here()
"""


class Watch:
    """Crashes with a poll of its own; `asked` as often as it asks."""

    def __init__(self, folder: Path) -> None:
        self.poll = select.poll()
        self.asked: list[float] = []
        self.crashes = Crashes(str(folder), self.poll, self.asked.append)

    def serve(self, seconds: float = 0.2) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for descriptor, _ in self.poll.poll(50):
                self.crashes.come(descriptor)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(tmp_path)
    yield made
    made.crashes.close()


def started(folder: Path, code: str = CRASH) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, str(folder / crashes.NAME)])


def test_it_lives_while_all_are_asked_and_ends_by_its_own_signal(
    watch: Watch, tmp_path: Path
) -> None:
    process = started(tmp_path)
    time.sleep(2)
    assert process.poll() is None
    until = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < until:
        watch.serve()
    assert process.wait(5) == -signal.SIGABRT
    assert watch.asked == [crashes.HELD]
    text = watch.crashes.text[process.pid]
    assert "Fatal Python error: Aborted" in text
    assert [f.function for f in client.parse_faulthandler(text)] == ["here", "<module>"]


def test_once_the_watch_is_over_nothing_is_held(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    process = started(tmp_path, CRASH.replace("os.abort()", "line.recv(1); os.abort()"))
    watch.serve(2.0)
    watch.crashes.close()
    assert process.wait(30) == -signal.SIGABRT
    assert not watch.asked


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [b"", b"\n", b"x\ny", b"-1\ny", b"1" * 99 + b"\ny", b"\xff\xfe", b"12\n", "²\ny".encode()],
)
def test_what_is_no_crash(watch: Watch, tmp_path: Path, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(tmp_path / crashes.NAME))
        line.sendall(said)
        watch.serve()
    watch.serve()
    assert (watch.asked, watch.crashes.text) == ([], {})


def test_who_talks_on_is_heard_for_a_moment_only(watch: Watch, tmp_path: Path) -> None:
    process = started(tmp_path, CRASH.replace("os.abort()", "while True: line.send(b'y' * 4096)"))
    try:
        until = time.monotonic() + 30
        while process.pid not in watch.crashes.text and time.monotonic() < until:
            watch.serve()
        assert 0 < len(watch.crashes.text[process.pid]) <= crashes.LIMIT + (1 << 16)
    finally:
        process.kill()
        process.wait()
