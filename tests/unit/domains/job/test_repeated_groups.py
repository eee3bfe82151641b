"""Groups that are made again and again are told from those that a job makes for good."""

from __future__ import annotations

from support.cases import world
from support.rehearsed_worlds import job, rank

from preflight.domains.job.frame import Frame
from preflight.domains.job.hang import Hang
from preflight.domains.job.record import Calls, Group
from preflight.domains.job.repeated_groups import RepeatedGroups, repeated_groups

LINE = Frame("train.py", 31, "reduce", True)


def making(
    many: int, *, steps: int = 40, each: int = 1, ranks: tuple[int, ...] = (0, 1), own: bool = True
) -> Calls:
    made = Frame("train.py", 31, "reduce", own)
    groups = [Group(str(n), ranks, each, each, made=made) for n in range(1, many + 1)]
    return rank("own", Group("0", (0, 1), 90, 90), *groups, steps=steps, world=2, why="time")


def seen(*ranks: Calls) -> RepeatedGroups | None:
    return repeated_groups(Hang.of(world("job.collectives", job(*ranks))))


def test_one_in_each_step() -> None:
    assert seen(making(40), making(41)) == RepeatedGroups(LINE, (0, 1), 41, 40, (0, 1))


def test_groups_that_are_made_for_good() -> None:
    assert seen(making(8), making(8)) is None
    assert seen(making(32, each=200), making(32, each=200)) is None, "each is used in every step"
    assert seen(making(32, steps=3), making(32, steps=3)) is None, "before the first steps"
    assert seen(making(32, own=False), making(32, own=False)) is None, "no line of the user's"


def test_groups_whose_ranks_are_not_known() -> None:
    """Torch 2.4 does not tell them: they may be those of other ranks."""
    assert seen(making(40, ranks=()), making(40, ranks=())) is None


def test_one_for_each_pair_of_ranks() -> None:
    groups = [Group(str(n), (n, n + 1), 0, 0, made=LINE) for n in range(32)]
    one = rank("own", *groups, steps=40, world=33, why="time")
    assert seen(one, one) is None
