"""The checks that a record leads to."""

from __future__ import annotations

import pytest

from preflight.domains.job.record import (
    Calls,
    Collective,
    Group,
    Life,
    RehearsalRecord,
    Rehearsed,
    WatchedCommand,
)
from preflight.rehearsal import job_checks


def waiting(op: str, why: str = "stuck") -> Rehearsed:
    call = Collective(3, op, "[8] Float", done=False)
    calls = Calls(why=why, at="collective", groups=(Group("0", (0, 1), 3, 2, (call,)),))
    return Rehearsed(Life(WatchedCommand(("x",), None, why, 9.0)), calls)


@pytest.mark.parametrize(
    ("ranks", "fabric"),
    [
        ((waiting("all_reduce"), waiting("all_reduce")), True),
        ((waiting("all_reduce"), waiting("broadcast")), False),
        ((waiting("all_reduce"),), False),
        ((waiting("all_reduce", "time"), waiting("all_reduce", "time")), False),
        ((waiting("all_reduce"), Rehearsed(Life(WatchedCommand((), None, "stuck", 9.0)))), False),
    ],
)
def test_the_fabric_is_looked_at_where_all_wait_in_one_call(
    ranks: tuple[Rehearsed, ...], fabric: bool
) -> None:
    assert job_checks.is_the_fabric(RehearsalRecord(ranks)) is fabric
