"""Threads of a process: what they have used of the CPU, and where they are."""

from __future__ import annotations

import os
import threading
import time
from types import FrameType

import pytest

from preflight.rehearsal.injected import preflight_threads as threads

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc")


def where(frame: FrameType | None) -> list[object] | None:
    """The function of this file that a thread is in."""
    while frame is not None:
        if frame.f_code.co_filename == __file__:
            return [frame.f_code.co_name]
        frame = frame.f_back
    return None


def test_a_thread_that_computes_and_one_that_waits() -> None:
    over = threading.Event()

    def computes() -> None:
        while not over.is_set():
            sum(range(1000))

    both = [
        threading.Thread(target=computes, name="n" * 99),
        threading.Thread(target=over.wait, name="waits"),
    ]
    for thread in both:
        thread.start()
    try:
        until = time.monotonic() + 20
        found: dict[int, list[object]] = {}
        while time.monotonic() < until:
            found = {one[0]: one for one in threads.told(threading.get_ident(), where)}
            if found[both[0].native_id or 0][2] >= 0.1:  # type: ignore[operator]
                break
            time.sleep(0.05)
    finally:
        over.set()
        for thread in both:
            thread.join()
    _, name, used, place = found[both[0].native_id or 0]
    assert name == "n" * threads.NAME
    assert isinstance(used, float)
    assert used >= 0.1
    assert place == ["computes"]
    _, name, used, place = found[both[1].native_id or 0]
    assert (name, used, place) == ("waits", 0.0, None)
    assert threading.main_thread().native_id not in found


def test_one_that_is_gone() -> None:
    assert threads.seconds(1 << 22) is None
    assert (threads.seconds(threading.get_native_id()) or 0.0) > 0.0
