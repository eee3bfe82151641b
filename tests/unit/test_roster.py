"""Agents that multiplied their own ranks per node are told from those that are wrong."""

from __future__ import annotations

import pytest

from preflight.roster import multiplied_apart


@pytest.mark.parametrize(
    ("agents", "apart"),
    [
        ([((0, 1), 4), ((3, 4, 5), 6)], True),
        ([((0, 1, 2), 6), ((2, 3), 4)], True),
        ([((0,), 3), ((3, 4, 5), 9), ((4, 5), 6)], True),
        ([((0, 1), 4), ((2, 3), 4)], False),  # as many each
        ([((0, 1), 6), ((3, 4, 5), 9)], False),  # one of three has not come
        ([((0, 1), 4), ((0, 1, 2), 6)], False),  # two are the first
        ([((0, 1), 4), ((2, 3), 6)], False),  # another number of nodes
        ([((0, 1), 4), ((2, 3, 4), 6)], False),  # no multiple of its own number
        ([((0, 2), 4), ((3, 4, 5), 6)], False),
        ([((0, 1), 4), ((), 0)], False),
        ([], False),
    ],
)
def test_nodes_with_different_numbers_of_ranks(
    agents: list[tuple[tuple[int, ...], int]], apart: bool
) -> None:
    assert multiplied_apart(agents) is apart
