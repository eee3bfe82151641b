"""Ranks as torchrun gives them, whoever comes; and as they were where words do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.meeting.numbering import adds_up, numbered
from preflight.meeting.protocol import RANKS_MOST, Hello


def hello(host: str, here: int, nodes: int = 2, node: int = -1, **changes: object) -> Hello:
    first = max(node, 0) * here
    ranks = tuple(range(first, first + here))
    made = Hello(
        *("1", "", host, f"id {host}", 1, ranks, here * nodes, "n1:29400", False, "nonce"),
        nodes=nodes,
        node=node,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def given_out(*hellos: Hello) -> list[tuple[tuple[int, ...], int]]:
    return [(one.ranks, one.size) for one in numbered(hellos)]


def test_the_host_is_first_and_the_others_follow_by_name() -> None:
    hellos = hello("gpu7", 2, 3), hello("gpu10", 1, 3), hello("gpu2", 3, 3)
    assert given_out(*hellos) == [((0, 1), 6), ((5,), 6), ((2, 3, 4), 6)]


def test_numbers_of_a_static_rendezvous_are_heeded() -> None:
    assert given_out(hello("b", 2, node=0), hello("a", 1, node=1)) == [((0, 1), 3), ((2,), 3)]
    assert given_out(hello("b", 1, node=1), hello("a", 2, node=0)) == [((2,), 3), ((0, 1), 3)]


def test_of_nodes_that_did_not_come_as_many_ranks_are_assumed_as_the_host_has() -> None:
    assert given_out(hello("a", 2, 4), hello("b", 3, 4)) == [((0, 1), 9), ((2, 3, 4), 9)]
    assert given_out(hello("a", 2, 3, 0), hello("c", 3, 3, 2)) == [((0, 1), 7), ((4, 5, 6), 7)]


def test_more_than_were_to_come_have_ranks_of_their_own() -> None:
    assert given_out(*[hello(name, 1) for name in "abc"]) == [((0,), 3), ((1,), 3), ((2,), 3)]


def test_how_many_nodes_there_are_is_the_hosts_to_say() -> None:
    assert given_out(hello("a", 1), hello("b", 1, 3)) == [((0,), 2), ((1,), 2)]
    assert given_out(hello("a", 1, 3), hello("b", 1)) == [((0,), 3), ((1,), 3)]


def test_one_whose_torchrun_is_static_keeps_its_number() -> None:
    assert given_out(hello("a", 1), hello("b", 2, node=1)) == [((0,), 3), ((1, 2), 3)]
    assert given_out(hello("a", 1), hello("b", 2, node=0)) == [((2,), 3), ((0, 1), 3)]


@pytest.mark.parametrize(
    "other",
    [
        hello("b", 1, node=0),  # two have one number
        hello("b", 1, nodes=0),  # of no torchrun
        hello("b", 2, ranks=(0, 2)),
        hello("b", 2, ranks=(1, 0)),
        hello("b", 1, ranks=()),
        hello("b", 1, node=2),
        hello("b", 1, node=-2),
        hello("b", 1, nodes=-1),
        hello("b", 1, nodes=RANKS_MOST + 1),
        hello("b", 1, nodes=RANKS_MOST, node=RANKS_MOST - 1),  # beyond what a job may have
    ],
)
def test_what_does_not_fit_changes_nothing(other: Hello) -> None:
    hellos = hello("a", 2, node=0), other
    assert numbered(hellos) == hellos


COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@given(COUNTS, st.randoms(use_true_random=False), st.booleans())
def test_each_rank_is_there_once(counts: list[int], random: object, static: bool) -> None:
    hellos = [
        hello(f"n{i}", count, len(counts), i if static else -1) for i, count in enumerate(counts)
    ]
    random.shuffle(hellos)  # type: ignore[attr-defined]
    assert all(map(adds_up, hellos))
    told = numbered(hellos)
    assert sorted(rank for one in told for rank in one.ranks) == list(range(sum(counts)))
    assert {one.size for one in told} == {sum(counts)}
    assert [len(one.ranks) for one in told] == [len(one.ranks) for one in hellos]
    assert numbered(told)[0].ranks == told[0].ranks or static
