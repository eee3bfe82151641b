"""What both ends of a pair say is one number; who is slow, by numbers of a few pairs."""

from __future__ import annotations

import math
from itertools import combinations

from preflight.domains.collectives.pair_bandwidth import (
    Exchange,
    Rates,
    SlowThreshold,
    rates,
    slow_links,
    slow_nodes,
)
from preflight.domains.net.pairing import NodeNumber

LIMITS = SlowThreshold(0.25)
FOUR = ("a", "b", "c", "d")


def fabric(nodes: tuple[str, ...], **other: float) -> Rates:
    """46 GB/s between any two, but for those that are given: `ab=15`."""
    made = {(x, y): other.get(x + y, 46.0) for x, y in combinations(nodes, 2)}
    return Rates(nodes, made)


def test_the_better_of_both_ends_is_what_was_reached() -> None:
    seen = rates(
        {
            "a": (NodeNumber(0, 3), (Exchange(1, 40.0), Exchange(2, 0.0))),
            "b": (NodeNumber(1, 3), (Exchange(0, 46.0), Exchange(2, math.inf))),
            "c": (NodeNumber(2, 3), (Exchange(0, 45.0), Exchange(9, 1.0), Exchange(2, 1.0))),
        }
    )
    assert seen.pairs == {("a", "b"): 46.0, ("a", "c"): 45.0}
    assert seen.best("c") == 45.0
    assert seen.best("a", ("b",)) == 45.0
    assert rates({}).median == 0.0


def test_the_median_of_four_nodes_is_not_pulled_down_by_one() -> None:
    assert fabric(FOUR, ab=23, ac=23, ad=23).median == 46.0


def test_a_slow_node_beside_a_slow_link() -> None:
    seen = fabric(FOUR, ab=15, ac=15, ad=15, bc=14)
    assert slow_nodes(seen, LIMITS) == ("a",)


def test_a_link_is_slow_where_both_ends_do_better() -> None:
    others = fabric(("b", "c", "d", "e", "f")).pairs
    one_end = Rates(("a", "b", "c", "d", "e", "f"), {("a", "b"): 15, ("a", "c"): 16, **others})
    assert slow_links(one_end, LIMITS, ()) == {}, "a does no better elsewhere"
    both = fabric((*FOUR, "e"), ab=15, ac=40)
    assert slow_links(both, LIMITS, ()) == {("a", "b"): 46.0}
    assert slow_links(both, LIMITS, ("a",)) == {}, "of a named node nothing more is said"


def test_too_few_pairs_tell_nothing() -> None:
    assert slow_nodes(fabric(("a", "b", "c"), ab=1, ac=1), LIMITS) == ()
    assert slow_links(fabric(("a", "b", "c"), ab=1), LIMITS, ()) == {}
    assert slow_nodes(Rates((), {}), LIMITS) == ()
