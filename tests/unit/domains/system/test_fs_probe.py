"""fs_probe: what never answers is named in time and hides nothing else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.domains.system.fs_probe import probe_in_children

Facts = Iterator[tuple[str, Any]]


def quick() -> Facts:
    yield "doing", "one"
    yield "pid", os.getpid()
    yield "doing", "two"


def hangs() -> Facts:
    yield "doing", "waiting"
    yield "pid", os.getpid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)
    yield "doing", "never"


def spins() -> Facts:
    yield "doing", "spinning"
    while True:
        pass


def chatty() -> Facts:
    for number in range(20_000):
        yield f"fact{number % 7}", "x" * 100


def gone(pid: int) -> bool:
    """Whether it has ended; on a busy machine it may be a zombie that nobody reaps any more."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_one_that_hangs_hides_no_other() -> None:
    began = time.monotonic()
    first, second, third = probe_in_children([quick, hangs, quick], 2.0)
    assert time.monotonic() - began < 6
    assert first.facts["doing"] == third.facts["doing"] == "two"
    assert (first.state, third.state) == ("", "")
    assert (second.state, second.facts["doing"]) == ("S", "waiting")
    assert gone(second.facts["pid"])
    assert gone(first.facts["pid"])


def test_one_that_gets_no_answer_but_runs_is_told_apart() -> None:
    (only,) = probe_in_children([spins], 0.3)
    assert only.state == "R"


def test_all_at_the_same_time_and_no_work_at_all() -> None:
    began = time.monotonic()
    assert [t.facts["doing"] for t in probe_in_children([hangs] * 8, 2.0)] == ["waiting"] * 8
    assert time.monotonic() - began < 8
    assert probe_in_children([], 0.3) == ()


def test_much_to_tell() -> None:
    (only,) = probe_in_children([chatty], 10)
    assert (len(only.facts), only.state) == (7, "")


def test_a_child_that_dies_is_our_bug(capfd: pytest.CaptureFixture[str]) -> None:
    def raises() -> Facts:
        yield "doing", "failing"
        raise LookupError("planted")

    def killed() -> Facts:
        yield "doing", "dying"
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="ended early: 1"):
        probe_in_children([raises, quick], 5)
    assert "LookupError: planted" in capfd.readouterr().err
    with pytest.raises(RuntimeError, match="ended early: -9"):
        probe_in_children([killed], 5)


def test_children_are_reaped_where_the_parent_ignores_them() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        (only,) = probe_in_children([quick], 5)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert only.facts["doing"] == "two"


def test_no_descriptor_stays_open() -> None:
    before = os.listdir("/proc/self/fd")
    probe_in_children([quick, hangs], 0.2)
    assert os.listdir("/proc/self/fd") == before
