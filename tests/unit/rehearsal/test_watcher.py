"""When a watch is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from preflight.rehearsal.history import History
from preflight.rehearsal.watcher import Watcher


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
