"""Ranks that wait for their GPU, and the one that is elsewhere, by their stacks alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.rehearsed_worlds import named, rank, told

from preflight.domains.job.record import Calls, Group


def outside(where: str = "own", *, line: int = 8, still: float = 5.1, **more: object) -> Calls:
    """A rank of which the stack is known."""
    seen = rank(where, line=line, why="time", still=still, quiet=5.2, steps=0, batches=0)
    return replace(seen, **({"groups": (), "world": 3} | more))  # type: ignore[arg-type]


WAITS = outside(gpu_wait=".item()", still=0.0)  # it burns a CPU there
LATE = outside(line=99)


def test_who_is_elsewhere_is_named() -> None:
    (found,) = told({0: WAITS, 1: LATE, 2: WAITS})
    assert found.code == "rank-elsewhere"
    assert named([found]) == {1}
    assert "rank 1 has done nothing for 5.1 s at train.py:99" in found.saw
    assert "ranks 0,2 wait for their GPUs at train.py:8 in step (.item())" in found.saw


@pytest.mark.parametrize(
    "other",
    [
        outside(line=99, still=0.4),  # it goes on
        outside("collective", line=99),
        outside("init", line=99),
        outside(line=99, moves=True),
        outside(line=99, groups=(Group("0", (0, 1, 2), 7, 7),)),  # its calls are known
        WAITS,
    ],
)
def test_in_doubt_nobody_is_named(other: Calls) -> None:
    found = told({0: WAITS, 1: other, 2: WAITS})
    assert "rank-elsewhere" not in {one.code for one in found}


def test_where_all_wait_that_is_shown() -> None:
    (found,) = told(dict.fromkeys(range(3), WAITS))
    assert found.code == "nothing-seen"
    assert "(it waits for its GPU: .item())" in found.saw
