"""Who tests whom: every node in few rounds, and by the same plan on each of them."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from preflight.domains.net.pairing import (
    ALL,
    FAR,
    NEAR,
    NodeNumber,
    by_number,
    dialled_by,
    dials,
    edges,
    rounds,
)


@pytest.mark.parametrize("count", [1, 2, 3, 8, ALL, ALL + 1, 200])
def test_who_dials_is_who_is_dialled(count: int) -> None:
    made = {(a, b) for a in range(count) for b in dials(a, count)}
    assert made == {(a, b) for b in range(count) for a in dialled_by(b, count)}
    assert len(made) == edges(count)
    assert all(a != b for a, b in made)


def test_up_to_64_nodes_every_edge_is_tested() -> None:
    assert edges(ALL) == ALL * (ALL - 1)
    most = 1000 * (len(NEAR) + FAR)
    assert 0.99 * most < edges(1000) <= most, "hardly anybody is drawn twice"
    assert edges(1) == 0


def test_above_that_everybody_dials_and_is_dialled_by_neighbours_and_by_others() -> None:
    for count in (ALL + 1, 500, 12500):
        for index in range(0, count, 97):
            to, by = dials(index, count), dialled_by(index, count)
            assert to[0] == (index + 1) % count
            assert index not in to
            assert len({*to, *by}) >= 8
            assert min(len(to), len(by)) >= 4


def leaf_pair_found(count: int, leaf: int, dice: random.Random) -> bool:
    """Whether an edge is tested from one group of neighbours to another one, or back."""
    here, there = dice.sample(range(count // leaf), 2)
    return any(
        dialled // leaf == (there if own == here else here)
        for own in (here, there)
        for index in range(own * leaf, (own + 1) * leaf)
        for dialled in dials(index, count)
    )


@pytest.mark.parametrize(("count", "leaf"), [(1024, 32), (4096, 32), (12500, 50), (12500, 100)])
def test_two_switches_that_do_not_reach_each_other_are_found_as_often_as_the_docs_say(
    count: int, leaf: int
) -> None:
    dice, tries = random.Random(5), 600
    found = sum(leaf_pair_found(count, leaf, dice) for _ in range(tries)) / tries
    stated = 1 - math.exp(-2 * FAR * leaf * leaf / count)
    assert abs(found - stated) < 3 * math.sqrt(stated * (1 - stated) / tries) + 0.02


def test_nobody_is_first_for_everybody() -> None:
    assert [dials(i, 4)[0] for i in range(4)] == [1, 2, 3, 0]


@pytest.mark.parametrize("count", [2, 3, 4, 7, 16])
def test_a_tournament_repeats_no_pair(count: int) -> None:
    plan = rounds(count, 99)
    pairs = [pair for made in plan for pair in made]
    assert len(set(pairs)) == len(pairs) == count * (count - 1) // 2
    for made in plan:
        met = [number for pair in made for number in pair]
        assert len(set(met)) == len(met) >= count - 1
    assert len(rounds(count, 2)) <= 2


def test_with_an_odd_count_another_node_rests_each_time() -> None:
    resting = [set(range(5)) - {n for pair in made for n in pair} for made in rounds(5, 5)]
    assert all(one != other for one, other in pairwise(resting))
    assert rounds(1, 5) == ()


def test_a_number_that_two_nodes_claim_names_neither() -> None:
    places = {"a": NodeNumber(0, 3), "b": NodeNumber(1, 3), "c": NodeNumber(1, 3)}
    assert by_number(places) == {0: "a"}
