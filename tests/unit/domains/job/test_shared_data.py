"""Parts of a dataset that come from different orders of it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from preflight.domains.job.frame import Frame
from preflight.domains.job.shared_data import (
    Dealt,
    Samples,
    Sharer,
    Shares,
    missed,
    same_inputs,
    shared_twice,
    told_apart,
    unlike_orders,
    unlike_samples,
)


def deals(rank: int, seed: int, steps: int = 0, epoch: int = 0, shuffle: bool = True) -> Dealt:
    return Dealt(steps, 2, rank, seed, epoch, shuffle, 100)


def test_the_first_pass_that_differs_is_found() -> None:
    found = {
        0: [deals(0, 1), deals(0, 1, 50, 1), deals(0, 1, 100, 2)],
        1: [deals(1, 1), deals(1, 1, 50), deals(1, 1, 100)],
    }
    differs = unlike_orders(found, {0: 120, 1: 120})
    assert differs is not None
    assert {rank: (one.steps, one.epoch) for rank, one in differs.items()} == {
        0: (50, 1),
        1: (50, 0),
    }
    assert list(told_apart(differs)) == [("epoch 1", (0,)), ("epoch 0", (1,))]


def test_a_pass_that_one_rank_makes_besides_moves_no_other() -> None:
    """It looked at a batch of another epoch before the training, or after some of it."""
    found = {0: [deals(0, 1), deals(0, 1, 50, 1), deals(0, 1, 70, 9)], 1: [deals(1, 1)]}
    found[1] += [deals(1, 1, 50, 1)]
    assert unlike_orders(found, {0: 90, 1: 90}) is None


def test_ranks_that_do_not_say_how_far_they_are_are_not_compared() -> None:
    assert unlike_orders({0: [deals(0, 1)], 1: [deals(1, 2)]}, {0: 10}) is None


@pytest.mark.parametrize(
    ("seeds", "part"), [((1, 2), 0.25), ((1, 2, 3), 8 / 27), ((1, 1, 1, 2), 0.1875)]
)
def test_what_is_missed_is_what_orders_of_chance_miss(seeds: tuple[int, ...], part: float) -> None:
    """Of all pairs, triples … of orders of some samples, the mean of what no rank takes."""
    dealt = {r: Dealt(0, len(seeds), r, seed, 0, True, 9) for r, seed in enumerate(seeds)}
    assert missed(dealt) == pytest.approx(part)


def test_two_orders_of_four_samples_miss_one_on_average() -> None:
    orders = list(itertools.permutations(range(4)))
    left = [4 - len({*one[0::2], *other[1::2]}) for one in orders for other in orders]
    assert sum(left) / len(left) / 4 == missed({0: deals(0, 1), 1: deals(1, 2)})


def test_a_rank_that_does_not_shuffle_is_told() -> None:
    dealt = {0: deals(0, 1), 1: deals(1, 1, shuffle=False)}
    assert list(told_apart(dealt)) == [("shuffled", (0,)), ("no shuffle", (1,))]


MARKS = [(step, 50 + step) for step in (0, 1, 2, 3, 4, 6)]


@pytest.mark.parametrize(
    ("mine", "theirs", "steps"),
    [
        (MARKS, MARKS, 6),
        (MARKS, [*MARKS[1:], (8, 1)], 0),
        (MARKS, [*MARKS[:5], (6, 1)], 0),
        (MARKS, [], 0),
        ([(step, mark // 2) for step, mark in MARKS], [(s, m // 2) for s, m in MARKS], 6),
        ([(step, mark // 9) for step, mark in MARKS], [(s, m // 9) for s, m in MARKS], 0),
    ],
)
def test_the_same_inputs(
    mine: list[tuple[int, int]], theirs: list[tuple[int, int]], steps: int
) -> None:
    assert same_inputs({0: mine, 1: theirs}) == steps
    assert same_inputs({0: mine}) == same_inputs({}) == 0


LOOP = Frame("train.py", 20, "main", own=True)
SAMPLER = Sharer("DistributedSampler", 2, 0)
EVEN = Samples("Subset", 50, 100, (2, 4, 6))
ODD = Samples("Subset", 50, 100, (1, 3, 5))


def loops(*samples: Samples | None, trains: bool = True, parts: int = 2) -> dict[int, list[Shares]]:
    """One loop of each rank, by what is known of its dataset."""
    sharer = Sharer("DistributedSampler", parts, 0)
    return {
        rank: [Shares(LOOP, trains, (sharer,), (one,) if one is not None else ())]
        for rank, one in enumerate(samples)
    }


def test_a_part_of_a_part() -> None:
    found = shared_twice(loops(EVEN, ODD), 2)
    assert found is not None
    assert (found.parts, found.shards, found.own) == (2, 2, EVEN)


def test_a_sampler_in_a_sampler() -> None:
    loop = Shares(LOOP, True, (Sharer("BatchSamplerShard", 2, 0), SAMPLER))
    found = shared_twice({0: [loop], 1: [loop]}, 2)
    assert found is not None
    assert (found.parts, found.shards, found.own) == (4, 1, None)
    assert shared_twice({rank: [loop] for rank in range(4)}, 4) is None  # nodes, then ranks


@pytest.mark.parametrize(
    "samples",
    [
        (EVEN, EVEN),
        (None, None),
        (EVEN, Samples("Subset", 50, 100, (1, 4, 5))),
        (EVEN, Samples("Subset", 50, 120, (1, 3, 5))),
        (Samples("Subset", 80, 100, (2, 4)), Samples("Subset", 80, 100, (1, 3))),
        (Samples("rows", 50, 0), Samples("rows", 50, 0)),
    ],
    ids=["the same", "not known", "by chance", "other data", "more than there are", "no span"],
)
def test_what_ranks_may_have(samples: tuple[Samples | None, ...]) -> None:
    assert shared_twice(loops(*samples), 2) is None


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ((0, 98, 2), (1, 99, 2), True),
        ((0, 98, 2), (4, 98, 2), False),
        ((0, 49, 1), (50, 99, 1), True),
        ((0, 50, 1), (50, 99, 1), False),
        ((0, 98, 2), (1, 99, 3), False),
    ],
)
def test_ranges(one: tuple[int, int, int], other: tuple[int, int, int], apart: bool) -> None:
    mine, theirs = (Samples("range", 50, 0, (), span) for span in (one, other))
    assert mine.is_apart(theirs) is theirs.is_apart(mine) is apart
    assert (shared_twice(loops(mine, theirs), 2) is not None) is apart


def test_only_where_all_ranks_train() -> None:
    assert shared_twice(loops(EVEN, ODD, trains=False), 2) is None
    assert shared_twice(loops(EVEN, ODD), 4) is None
    assert shared_twice(loops(EVEN, ODD) | {1: []}, 2) is None
    assert shared_twice({}, 0) is None


def test_parts_of_nodes_that_their_ranks_share() -> None:
    found = loops(EVEN, EVEN, ODD, ODD)
    assert shared_twice(found, 4) is None
    found = loops(EVEN, EVEN, ODD, ODD, parts=4)
    twice = shared_twice(found, 4)
    assert twice is not None
    assert (twice.parts, twice.shards) == (4, 2)


def test_a_table_by_its_fingerprint() -> None:
    """Which differs for other reasons as well: the parts must make up the whole."""
    parts = [Samples("table", 50, 100, (mark,)) for mark in (7, 8)]
    assert shared_twice(loops(*parts), 2) is not None
    whole = [Samples("table", 90, 100, (mark,)) for mark in (7, 8)]
    assert shared_twice(loops(*whole), 2) is None


ALL = Samples("Subset", 4, 9, (1, 2, 3, 5), order=7)


def divided(*samples: Samples | None) -> dict[int, list[Shares]]:
    found = loops(*samples, parts=len(samples))
    return {
        rank: [replace(loop, sharers=(Sharer("DistributedSampler", len(samples), rank),))]
        for rank, (loop,) in found.items()
    }


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (replace(ALL, marks=(2, 3, 5, 6), order=8), True),
        (replace(ALL, order=8), True),
        (replace(ALL, length=3, marks=(1, 2, 3), order=8), True),
        (ALL, False),
        (replace(ALL, marks=(4, 6, 7, 8), order=8), False),
        (replace(ALL, order=0), False),
        (replace(ALL, kind="List", order=8), False),
        (None, False),
    ],
    ids=["others", "an order", "fewer", "the same", "none in common", "no order", "a kind", "-"],
)
def test_ranks_with_other_samples(other: Samples | None, differs: bool) -> None:
    found = unlike_samples(divided(ALL, other), 2)
    assert (found is not None) is differs
    if found is not None:
        assert found[1] == {0: ALL, 1: other}


def test_other_samples_only_where_all_ranks_share_one_dataset() -> None:
    other = replace(ALL, order=8)
    assert unlike_samples(divided(ALL, other), 4) is None
    assert unlike_samples(loops(ALL, other), 2) is None  # the same part twice
    one = {rank: [replace(loop, trains=False)] for rank, (loop,) in divided(ALL, other).items()}
    assert unlike_samples(one, 2) is None
    assert unlike_samples({}, 0) is None
    three = unlike_samples(divided(ALL, ALL, other), 3)
    assert three is not None
    assert three[1][2] == other
