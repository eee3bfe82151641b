"""When a sleep ends is read out of the kernel, of threads of the process and of its children."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from preflight.rehearsal.injected import preflight_sleeps as sleeps

READABLE = os.access("/proc/self/task", os.R_OK) and os.uname().machine in sleeps.PLACES
pytestmark = pytest.mark.skipif(not READABLE, reason="another machine, or no /proc")


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A thread that sleeps for a second and a half."""
    numbers: list[int] = []

    def sleep() -> None:
        numbers.append(threading.get_native_id())
        time.sleep(1.5)

    thread = threading.Thread(target=sleep)
    thread.start()
    while not numbers:
        time.sleep(0.01)
    time.sleep(0.05)
    yield numbers[0]
    thread.join()


def test_the_end_of_a_sleep(sleeper: int) -> None:
    ends = sleeps.ends(sleeper)
    if ends is None:
        pytest.skip("the kernel does not tell in which call a thread is")
    assert 0.5 < ends - time.monotonic() <= 1.5
    assert abs((sleeps.ends(sleeper) or 0.0) - ends) < 0.02


def test_who_does_not_sleep() -> None:
    assert sleeps.ends(threading.get_native_id()) is None
    assert sleeps.ends(1 << 22) is None


def test_of_children_the_first_to_wake() -> None:
    commands = [[sys.executable, "-c", f"import time; time.sleep({n})"] for n in (30, 60)]
    children = [subprocess.Popen(command) for command in commands]
    try:
        found, until = None, time.monotonic() + 10
        while found is None and time.monotonic() < until:
            time.sleep(0.1)
            found = sleeps.first_to_wake([child.pid for child in children])
        if found is None:
            pytest.skip("the kernel does not let a process look into its children")
        assert 15 < found - time.monotonic() <= 60
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert sleeps.first_to_wake([child.pid for child in children]) is None
    assert sleeps.first_to_wake([]) is None


def test_a_time_that_counts_from_the_begin_counts_from_the_first_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """nanosleep, as of a library in C++; and select() of Python 3.10, without files to wait for."""
    monkeypatch.setattr(sleeps, "MACHINE", "x86_64")
    calls = iter([b"35 0x10 0x0 0x0 0x0 0x0 0x0", b"35 0x10 0x0 0x0 0x0 0x0 0x0"])
    monkeypatch.setattr(sleeps, "read_call", lambda _: next(calls))
    monkeypatch.setattr(sleeps, "read_time", lambda *_: 5.0)
    first, again = sleeps.ends_of("7", "7"), sleeps.ends_of("7", "7")
    assert first == again is not None
    assert 4.5 < first - time.monotonic() < 5.01
    calls = iter(
        [b"270 0x3 0x0 0x0 0x0 0x10 0x0", b"270 0x0 0x0 0x0 0x0 0x10 0x0", b"running", b""]
    )
    assert sleeps.ends_of("7", "7") is None
    assert sleeps.ends_of("8", "8") is not None
    assert sleeps.ends_of("8", "8") is sleeps.ends_of("8", "8") is None
