"""Which processes of a command are its ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from preflight.rehearsal.history import History
from preflight.rehearsal.sampling import (
    number_by_elimination,
    number_by_index,
    select_ranks,
    select_unnumbered,
)

COMMAND, FIRST, SECOND, HELPER = 10, 20, 30, 40


def process(pid: int, rank: int | None, world: int = 2, **more: object) -> History:
    made = History(pid, float(pid))
    made.rank, made.world = rank, world
    for name, value in more.items():
        setattr(made, name, value)
    return made


def ranks(parents: dict[int, int], *processes: History) -> dict[int | None, int]:
    def above(pid: int) -> Iterator[int]:
        while pid := parents.get(pid, 0):
            yield pid

    return {h.rank: h.pid for h in select_ranks({h.pid: h for h in processes}, above)}


def test_of_a_launcher_what_it_has_started() -> None:
    below = {FIRST: COMMAND, SECOND: COMMAND, HELPER: FIRST}
    helper = process(HELPER, 0)  # a worker of a DataLoader that imports torch, with rank 0's RANK
    first, second = process(FIRST, 0, joined=True), process(SECOND, 1)
    found = ranks(below, process(COMMAND, None), first, second, helper)
    assert found == {0: FIRST, 1: SECOND}


@pytest.mark.parametrize("joined", [False, True])
def test_a_rank_that_starts_the_others_is_one(joined: bool) -> None:
    """Lightning: the command is rank 0, and the parent of rank 1."""
    first = process(COMMAND, 0, joined=joined, by_node=not joined)
    second = process(SECOND, 1, joined=joined, by_node=not joined)
    helper = process(HELPER, 0, by_node=True)
    below = {SECOND: COMMAND, HELPER: COMMAND}
    assert ranks(below, first, second, helper) == {0: COMMAND, 1: SECOND}


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize(("pod", "pods"), [(0, 2), (1, 2), (1, 4)])
def test_the_rank_of_a_pod_is_none(pod: int, pods: int, joined: bool) -> None:
    launcher = process(COMMAND, pod, pods)
    below = {FIRST: COMMAND, SECOND: COMMAND}
    started = process(FIRST, 2, 4, joined=joined), process(SECOND, 3, 4, joined=joined)
    assert ranks(below, launcher, *started) == {2: FIRST, 3: SECOND}


def test_a_job_that_a_rank_runs_for_itself_is_not_the_job() -> None:
    """An evaluation with a process group of its own."""
    first, second = process(FIRST, 0, joined=True), process(SECOND, 1, joined=True)
    inner = process(HELPER, 3, 4, joined=True)
    assert ranks({HELPER: SECOND}, first, second, inner) == {0: FIRST, 1: SECOND}


def test_of_one_that_was_started_again_the_latest() -> None:
    assert ranks({}, process(FIRST, 0), process(SECOND, 0)) == {0: SECOND}


def test_children_that_may_be_ranks_are_no_helpers() -> None:
    """FIRST is a rank, HELPER its child, SECOND the command's; 50 is a child of SECOND."""
    parents = {FIRST: COMMAND, SECOND: COMMAND, HELPER: FIRST, 50: SECOND}
    found = [process(COMMAND, None), process(FIRST, 0)]
    found += [process(pid, None, child=True) for pid in (SECOND, HELPER, 50)]

    def above(pid: int) -> Iterator[int]:
        while pid := parents.get(pid, 0):
            yield pid

    known = {h.pid: h for h in found}
    assert [h.pid for h in select_unnumbered(known, above)] == [SECOND]


@pytest.mark.parametrize(
    ("world", "numbered", "unnumbered", "found"),
    [
        (2, {20: 0}, [30], [1]),
        (2, {30: 1}, [20], [0]),
        (2, {20: 1}, [30], [0]),  # there is but one that it can be
        (4, {20: 0, 50: 3}, [30, 40], [1, 2]),
        (4, {20: 3, 50: 0}, [30, 40], [None, None]),  # not started in their order
        (2, {20: 0, 30: 1}, [40], [None]),  # all are there: a helper
        (2, {20: 0}, [30, 40], [None, None]),  # one too many
        (3, {20: 0, 30: 0}, [40], [None]),
        (0, {}, [20], [None]),
    ],
)
def test_who_has_no_number_has_the_one_that_is_left(
    world: int, numbered: dict[int, int], unnumbered: list[int], found: list[int | None]
) -> None:
    ranks = [process(pid, rank, world) for pid, rank in numbered.items()]
    rest = [process(pid, None, 0, child=True) for pid in unnumbered]
    number_by_elimination(rest, ranks)
    assert [h.rank for h in rest] == found


@pytest.mark.parametrize(
    ("numbered", "indexes", "found"),
    [
        ({}, {30: 0, 40: 1}, [0, 1]),
        ({}, {40: 1}, [None, 1]),
        ({20: 0}, {30: 1, 40: 2}, [1, 2]),
        ({20: 0}, {30: 0, 40: "2"}, [None, None]),  # another is it; no number
        ({}, {30: -1, 40: True}, [None, None]),
        ({}, {30: 1 << 40}, [None, None]),
    ],
)
def test_who_was_spawned_has_the_number_that_it_was_given(
    numbered: dict[int, int], indexes: dict[int, object], found: list[int | None]
) -> None:
    ranks = [process(pid, rank, 4) for pid, rank in numbered.items()]
    rest = [process(pid, None, 0, child=True) for pid in (30, 40)]
    number_by_index(rest, ranks, indexes)
    assert [h.rank for h in rest] == found
    assert {h.world for h in rest if h.rank is not None} <= {4 if numbered else 2}
