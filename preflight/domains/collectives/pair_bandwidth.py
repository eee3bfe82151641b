"""Which node, or which two nodes, exchange less than the rest: from what each pair reached. Pure.

A node is only as fast as its best pair: the others may be their partners' fault. Two nodes have a
slow link where both are better elsewhere. A fabric whose switches share their uplinks is slow
between any two of them, which is no single node's or link's fault: of that nothing is said.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Hashable, Mapping
from functools import cached_property
from typing import TypeVar

from preflight.domains.net.pairing import NodeNumber, by_number, rounds
from preflight.frozen import dataclass
from preflight.inference import outliers

Pair = tuple[str, str]

ROUNDS = 5
"""Partners of each node: a slow node is slow with all of them, a slow link with one."""

ORDINARY = 0.1
"""Part of the other pairs, but at least one, that may be as slow as a node that is called slow:
where more are, that is how this fabric is, and the node only met no near partner."""

NEAR = 1.1
"""As slow is what is up to so many times as fast."""

CROWD = 0.25
"""Slow links, as a part of the nodes, from which on it is no matter of single links."""


def plan(count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The rounds, each of disjoint pairs of nodes. Of many nodes first the neighbours, who are most
    often at the same switch: behind uplinks that are shared, a node would be slow that met none."""
    if count <= ROUNDS + 1:
        return rounds(count, ROUNDS)  # all pairs
    return (tuple((i, i + 1) for i in range(0, count - 1, 2)), *rounds(count, ROUNDS - 1))


@dataclass(frozen=True, slots=True)
class Exchange:
    """What went each way at once between this node and another one, by its number, in GB/s."""

    peer: int
    gbs: float


@dataclass(frozen=True)
class Rates:
    """GB/s of the pairs, each named in the order of the nodes."""

    nodes: tuple[str, ...]
    pairs: Mapping[Pair, float]

    @cached_property
    def median(self) -> float:
        """The higher one: a slow node is in half of the pairs of four."""
        return statistics.median_high(self.pairs.values()) if self.pairs else 0.0

    @cached_property
    def _partners(self) -> Mapping[str, Mapping[str, float]]:
        found: dict[str, dict[str, float]] = {node: {} for node in self.nodes}
        for (a, b), rate in self.pairs.items():
            found[a][b] = found[b][a] = rate
        return found

    def of(self, node: str) -> Mapping[str, float]:
        """Partner -> rate."""
        return self._partners[node]

    def best(self, node: str, without: Collection[str] = ()) -> float:
        """The fastest pair of a node; 0 where it has none."""
        return max((r for p, r in self.of(node).items() if p not in without), default=0.0)

    def apart_from(self, nodes: Collection[str]) -> list[float]:
        """The rates of the pairs in which none of these takes part."""
        return [rate for pair, rate in self.pairs.items() if not {*pair} & {*nodes}]


def rates(told: Mapping[str, tuple[NodeNumber, tuple[Exchange, ...]]]) -> Rates:
    """All pairs, from what the nodes say of theirs. Both ends time the same bytes: the better of
    the two is what was reached. A number that is no node's, and what is no rate, is left out."""
    names = by_number({node: place for node, (place, _) in told.items()})
    found: dict[tuple[int, int], float] = {}
    for number, node in names.items():
        for exchange in told[node][1]:
            if exchange.peer in names and exchange.peer != number and 0 < exchange.gbs < math.inf:
                pair = (min(number, exchange.peer), max(number, exchange.peer))
                found[pair] = max(exchange.gbs, found.get(pair, 0.0))
    made = {(names[a], names[b]): rate for (a, b), rate in sorted(found.items())}
    return Rates(tuple(name for _, name in sorted(names.items())), made)


@dataclass(frozen=True, slots=True)
class SlowThreshold:
    """What is slow: `gap`, a part of the median, below it, and below `cap` GB/s."""

    gap: float
    cap: float = math.inf


K = TypeVar("K", bound=Hashable)


def _outliers_below(numbers: Mapping[K, float], gap: float) -> list[K]:
    """Whose rates are both outside of the noise and by `gap` below the median. In logarithms: where
    rates scatter by a half, as over a busy CPU, none is five times that below the median."""
    if not numbers:
        return []
    keys = {f"{place}": key for place, key in enumerate(numbers)}
    logs = {place: math.log(numbers[key]) for place, key in keys.items()}
    middle = statistics.median(logs.values())
    parts = {place: 1 + log - middle for place, log in logs.items()}
    return [keys[p] for p in outliers(parts, floor=-math.log(1 - gap), high=False).odd]


def slow_nodes(seen: Rates, limits: SlowThreshold) -> tuple[str, ...]:
    """The nodes that are slow with every partner, as hardly any two others are."""
    best = {node: seen.best(node) for node in seen.nodes if len(seen.of(node)) > 1}
    slow = {node for node in _outliers_below(best, limits.gap) if best[node] < limits.cap}
    others = seen.apart_from(slow)
    few = max(1, int(ORDINARY * len(others)))
    return tuple(
        node
        for node in seen.nodes
        if node in slow and sum(rate <= NEAR * best[node] for rate in others) <= few
    )


def slow_links(seen: Rates, limits: SlowThreshold, blamed: Collection[str]) -> Mapping[Pair, float]:
    """Slow pairs of nodes that both do better elsewhere, with the less of what they do there."""
    left = {pair: rate for pair, rate in seen.pairs.items() if not {*pair} & {*blamed}}
    found = {}
    for a, b in _outliers_below(left, limits.gap):
        usual = min(seen.best(a, (b,)), seen.best(b, (a,)))
        if left[a, b] < min(limits.cap, (1 - limits.gap) * usual):
            found[a, b] = usual
    return found if len(found) <= max(2, CROWD * len(seen.nodes)) else {}
