"""When a watch is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from preflight.rehearsal.history import History
from preflight.rehearsal.watcher import EVERY, GLANCE, GLANCES, Watcher


def quiet_since(at: float) -> History:
    history = History(1, at)
    history.changed = history.moved = history.stood = at
    return history


@pytest.mark.parametrize(
    ("starting", "stands"),
    [((), True), ((60.0,), True), ((99.9,), False), ((60.0, 99.9), False)],
)
def test_a_job_whose_time_is_over_does_not_stand_while_a_rank_comes(
    starting: tuple[float, ...], stands: bool
) -> None:
    """One waits in init_process_group for those that still import torch on a busy machine."""
    seen = SimpleNamespace(
        over_at=100.0,
        ends={},
        patience=20.0,
        until=100.0,
        ranks=lambda: [quiet_since(70.0)],
        starting=lambda: [quiet_since(at) for at in starting],
    )
    assert Watcher._stands(cast(Watcher, cast(Any, seen))) is stands


def stepping(every: float, *, until: float) -> History:
    """One whose steps take so long, looked at ten times a second."""
    history = History(1, 0.0)
    for look in range(int(10 * until)):
        at = look / 10
        history.add_answer(at, {"steps": int(at / every) + 1, "rank": 0, "stack": []})
    return history


@pytest.mark.parametrize(
    ("ranks", "now", "seconds"),
    [
        pytest.param([], 5.0, EVERY, id="none"),
        pytest.param([History(1, 0.0)], 5.0, EVERY, id="before its first step"),
        pytest.param([stepping(0.02, until=5.0)], 5.0, GLANCE, id="short steps"),
        pytest.param([stepping(0.02, until=5.0)], 5.0 + GLANCES, EVERY, id="later"),
        pytest.param([stepping(2.0, until=20.0)], 6.5, EVERY, id="long steps"),
    ],
)
def test_ranks_are_glanced_at_in_their_first_short_steps(
    ranks: list[History], now: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preflight.rehearsal.watcher.time.monotonic", lambda: now)
    seen = SimpleNamespace(ranks=lambda: ranks, ends={})
    found = Watcher._glance_seconds(cast(Watcher, cast(Any, seen)))
    assert found == seconds if seconds < EVERY else found >= EVERY


def test_a_glance_is_taken_at_half_a_step_at_most() -> None:
    one = stepping(0.5, until=5.0)
    assert 0.4 < one.step_seconds < 0.6
    assert History(1, 0.0).step_seconds == 0.0
