"""Parts of a dataset that come from different orders of it."""

from __future__ import annotations

import itertools

import pytest

from preflight.domains.job.shared_data import (
    Dealt,
    missed,
    same_inputs,
    told_apart,
    unlike_orders,
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
