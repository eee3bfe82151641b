"""Lists of ranks in words: one style, bounded, with their nodes where there are several; times."""

from __future__ import annotations

import pytest

from preflight.humanize import latency, rank_list, ranks_of
from preflight.model import Cause, Missing, Topology, World


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), ""),
        ((3,), "rank 3"),
        ((3, 3), "rank 3"),
        ((0, 1), "ranks 0-1"),
        ((6, 2, 0, 1), "ranks 0-2,6"),
        (range(0, 30, 2), "ranks 0,2,4,6,8,10,12,14,16,18,20,22,…"),
    ],
)
def test_a_list_of_ranks(numbers: tuple[int, ...], text: str) -> None:
    assert rank_list(numbers) == text


def test_a_list_of_ranks_in_full() -> None:
    assert rank_list(range(0, 30, 2), None).endswith(",22,24,26,28")


def world(*keys: str) -> World[None]:
    gone = Missing(Cause.NOT_ARRIVED)
    return World("a.check", dict.fromkeys(keys, gone), Topology())


def test_ranks_of_one_node_need_no_node() -> None:
    assert ranks_of(world("n1/0", "n1/1", "n1/2"), ["n1/0", "n1/1"]) == "ranks 0-1"
    assert ranks_of(world("n1"), ["n1"]) == "n1"


def test_ranks_of_several_nodes() -> None:
    two = world("n1/0", "n1/1", "n2/2", "n2/3", "n3/4")
    assert ranks_of(two, ["n2/2", "n2/3"]) == "all 2 ranks of n2"
    assert ranks_of(two, ["n1/1", "n3/4"]) == "rank 1 on n1 and rank 4 on n3"
    assert ranks_of(two, ["n1/0", "n1/1", "n2/3"]) == "all 2 ranks of n1 and rank 3 on n2"


def test_the_time_of_a_small_message() -> None:
    assert [latency(s) for s in (2.9e-5, 0.0009, 0.0012, 0.4)] == [
        "29 µs",
        "900 µs",
        "1 ms",
        "400 ms",
    ]
