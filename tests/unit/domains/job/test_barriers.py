"""Which line's barrier is called again and again within a step, and about how often."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import world
from support.rehearsed_worlds import call, job, rank

from preflight.domains.job.barriers import BARRIERS, RepeatedBarrier, repeated_barrier
from preflight.domains.job.hang import Hang
from preflight.domains.job.record import Calls, Group


def stepping(stretch: int, *, line: int = 61, op: str = "barrier", steps: int = 10) -> Calls:
    """A rank with three stretches of barriers between all-reduces; 40 of both for each 10 steps."""
    ops = ["all_reduce", *[op] * stretch] * 3
    made = tuple(
        call(n, kind, line if kind == op else 38, done=True) for n, kind in enumerate(ops, 1)
    )
    many = 4 * steps * (stretch + 1)
    last = Group("0", (0, 1), many, many, made)
    return rank("own", last, steps=steps, world=2, why="time", still=0.1, quiet=0.1)


def seen(*ranks: Calls) -> RepeatedBarrier | None:
    return repeated_barrier(Hang.of(world("job.collectives", job(*ranks))))


@pytest.mark.parametrize("op", BARRIERS)
def test_how_often_in_a_step(op: str) -> None:
    found = seen(*[stepping(12, op=op)] * 2)
    assert found is not None
    assert (found.frame.line, found.ranks) == (61, (0, 1))
    assert found.in_a_step == pytest.approx(48)


def test_the_rank_that_calls_it_least_counts() -> None:
    found = seen(stepping(12), stepping(9))
    assert found is not None
    assert found.in_a_step == pytest.approx(36)
    assert seen(stepping(12), stepping(7)) is None


def test_what_is_no_habit() -> None:
    often = stepping(12)
    assert seen(often, stepping(12, line=62)) is None
    assert seen(*[replace(often, steps=4)] * 2) is None
    once = replace(often.groups[0], calls=often.groups[0].calls[:13])
    assert seen(*[replace(often, groups=(once,))] * 2) is None
    nameless = tuple(replace(one, frame=None) for one in often.groups[0].calls)
    assert seen(*[replace(often, groups=(replace(once, calls=nameless),))] * 2) is None
    assert seen(*[replace(often, groups=())] * 2) is None
