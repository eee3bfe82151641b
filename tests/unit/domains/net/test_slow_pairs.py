"""Numbers of pairs: a node that is behind with everybody is told from a link between two."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations

import pytest

from preflight.domains.net.rounds import ABSENT, Trial
from preflight.domains.net.slow_pairs import (
    IN,
    OUT,
    Edge,
    EdgeRate,
    PairSpeeds,
    all_broken,
    below,
    far_links,
    far_nodes,
    groups,
    limited,
    lossy_links,
    lossy_nodes,
    measured_pairs,
    pair_speeds,
    slow_links,
    slow_nodes,
    unmeasured,
)
from preflight.domains.net.tcp_throughput import Burst, Transfer

NODES = ("a", "b", "c", "d")
GOOD, SLOW = EdgeRate(1e9, 1e9, 0.0), EdgeRate(1e8, 1e8, 0.0)


def speeds(
    rate: Callable[[str, str], EdgeRate] = lambda a, b: GOOD,
    trip: Callable[[set[str]], float] = lambda pair: 0.0001,
    nodes: tuple[str, ...] = NODES,
) -> PairSpeeds:
    return PairSpeeds(
        nodes,
        {(a, b): rate(a, b) for a, b in permutations(nodes, 2)},
        {frozenset(pair): trip(set(pair)) for pair in combinations(nodes, 2)},
        {},
    )


def test_healthy_pairs_accuse_nobody() -> None:
    seen = speeds()
    assert not slow_nodes(seen)
    assert not slow_links(seen).certain
    assert not slow_links(seen).unclear
    assert not far_nodes(seen)
    assert not far_links(seen)
    assert not lossy_nodes(seen)
    assert not lossy_links(seen)
    assert measured_pairs(seen) == 6


@pytest.mark.parametrize(("end", "position"), [(OUT, 0), (IN, 1)])
def test_a_node_that_is_slow_with_everybody(end: int, position: int) -> None:
    seen = speeds(lambda *edge: SLOW if edge[position] == "b" else GOOD)
    assert slow_nodes(seen) == {"b": (end,)}


def test_a_limit_is_as_fast_with_each_partner() -> None:
    of_each = {"a": 1e8, "c": 1.1e8, "d": 1.15e8}
    seen = speeds(lambda a, b: EdgeRate(of_each[a], of_each[a]) if b == "b" else GOOD)
    assert limited(seen, "b", (IN,))
    of_each["d"] = 2e8
    seen = speeds(lambda a, b: EdgeRate(of_each[a], of_each[a]) if b == "b" else GOOD)
    assert not limited(seen, "b", (IN,))


def test_a_link_whose_ends_are_fast_elsewhere() -> None:
    seen = speeds(lambda a, b: SLOW if (a, b) == ("a", "c") else GOOD)
    assert slow_nodes(seen) == {}
    assert slow_links(seen).certain == {("a", "c"): 1e9}


def test_two_nodes_can_not_tell_link_from_end() -> None:
    broken = EdgeRate(1e6, 1e6)
    seen = speeds(lambda a, b: broken, nodes=("a", "b"))
    assert set(slow_links(seen).unclear) == {("a", "b"), ("b", "a")}
    assert all_broken(seen)
    assert not all_broken(speeds())
    far = EdgeRate(1e6, 1e6, far=True, started=False)
    assert not all_broken(speeds(lambda a, b: far))
    assert all_broken(speeds(lambda a, b: far if "a" in (a, b) else broken))


def test_a_queue_makes_a_way_long_and_all_alike() -> None:
    queued = EdgeRate(1e6, 1e6, far=True)
    assert all_broken(speeds(lambda a, b: queued))
    faster = EdgeRate(4e6, 4e6, far=True)
    assert not all_broken(speeds(lambda a, b: faster if "a" in (a, b) else queued))
    starting = EdgeRate(1e6, 1e6, far=True, started=False)
    assert not all_broken(speeds(lambda a, b: starting if "a" in (a, b) else queued))


def test_who_waited_for_a_cpu_is_not_slow() -> None:
    seen = speeds(lambda a, b: EdgeRate(1e8, 1e9) if a == "b" else GOOD)
    assert slow_nodes(seen) == {}


def test_below_a_floor() -> None:
    seen = speeds(lambda a, b: SLOW if a == "b" else GOOD)
    assert below(seen, 5e8).nodes == ("b",)
    assert below(seen, 5e8).edges == ()
    everybody = below(speeds(lambda a, b: SLOW), 5e8)
    assert (everybody.nodes, len(everybody.edges)) == ((), 12)


def test_a_node_that_is_far_from_all() -> None:
    seen = speeds(trip=lambda pair: 0.02 if "d" in pair else 0.0001)
    assert far_nodes(seen) == {"d": 0.0001}
    assert far_links(seen) == {}
    one = speeds(trip=lambda pair: 0.02 if pair == {"a", "d"} else 0.0001)
    assert far_links(one) == {("a", "d"): 0.0001}


def test_what_loses_segments() -> None:
    lossy = EdgeRate(1e9, 1e9, 0.05)
    assert lossy_nodes(speeds(lambda a, b: lossy if a == "c" else GOOD)) == {"c": (OUT,)}
    link: Edge = ("a", "b")
    assert lossy_links(speeds(lambda *e: lossy if e == link else GOOD)) == {link: 0.05}


def test_islands() -> None:
    apart = [e for e in permutations(NODES, 2) if len({*e} & {"a", "b"}) == 1]
    joined = [("a", "b"), ("c", "d")]
    assert groups(NODES, apart, joined) == [["a", "b"], ["c", "d"]]
    assert groups(NODES, apart, joined[:1]) == []


def test_the_best_trial_of_an_edge_counts_and_strangers_do_not() -> None:
    def trial(peer: int, rate: float, again: bool = False) -> Trial:
        return Trial(peer, 0, again, Transfer(Burst(rate), 0.0001, 0.0001))

    seen = pair_speeds(
        {0: "a", 1: "b"},
        {"a": [trial(1, 1e8), trial(1, 9e8, again=True), trial(7, 1e9), trial(0, 1e9)]},
    )
    assert {edge: rate.rate for edge, rate in seen.rates.items()} == {("b", "a"): 9e8}
    assert seen.trips == {frozenset("ab"): 0.0001}


def test_why_a_node_measured_nothing() -> None:
    seen = pair_speeds({0: "a", 1: "b"}, {"a": [Trial(1, 0, False, Transfer(error="EPIPE"))]})
    assert list(unmeasured(seen, ["a", "b"])) == [("a", "EPIPE"), ("b", ABSENT)]
