"""Which node or which link is behind the rest, from numbers of pairs. Pure.

A node is only as slow as its best edge: the others may be their partners' fault. A link is slow
where both its ends are better elsewhere. What only one of them can show is neither.
"""

from __future__ import annotations

import bisect
import heapq
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from preflight.domains.net.rounds import ABSENT, Trial
from preflight.domains.net.tcp_throughput import BURST_MOST, BURST_TRIPS, rate_of_start
from preflight.frozen import dataclass

Edge = tuple[str, str]

OUT, IN = 0, 1
"""The ends of an edge: the node that sends on it, the node that receives."""

SLOW = 0.4
"""Of what the others do: a card at a tenth of its speed is far below; the load of a machine or of
a shared switch isn't."""

FAST = 1e9
"""Bytes a second from which on one TCP stream measures the CPU and not the card."""

BROKEN = 12.5e6
"""100 Mbit/s. Nobody builds a cluster with less; a card that fell back to it has 94."""

ALIKE = 1.5
"""Times as fast as the slowest, at most, where all have one limit."""

STARTED = 2.5
"""Times as fast as TCP's start makes a burst over a long way: then it is past it. Measured over 50
and 120 ms with nothing in the way: 1.7 at most."""

FAR, FAR_SECONDS = 10.0, 0.001

LOSS, LOSS_OTHERS = 0.006, 0.25
"""Share of segments sent again, and what the others may have of that: less than a quarter. A cable
that loses 1 % is told from chance by the thousands of segments of a second."""
LOSS_ALONE = 0.02
"""The same with no others to compare with, or where all lose as much: less may be a queue's."""

STILL = 0.7
"""Seconds without a byte at the end of a round. What is lost by chance is sent again after 0.2 s,
and once more 0.4 s later."""
SOME, REPEATED = 1 << 16, 2
"""Bytes that such a connection has carried before, and segments sent again since, at least."""

NOTHING = 0, 0
SEGMENTS, RESENT = 1000, 20
"""So many make a share of them a number: sent at all, or sent again."""

STEADY = 1.2
"""The fastest of a node's edges and the slowest, at most, where a limit makes them slow."""


@dataclass(frozen=True, slots=True)
class EdgeRate:
    """A directed edge, bytes per second. `able`: had nobody waited for a CPU; what is called slow
    is slow even then. `lost`: the share of segments sent again; None: too few to tell. `far`: the
    way is so long that a burst is over before it can show what else holds it up; `started`: it
    shows that all the same, since a queue was what took so long."""

    rate: float
    able: float
    lost: float | None = None
    far: bool = False
    started: bool = True


@dataclass(frozen=True)
class PairSpeeds:
    """All that was measured, by the nodes' names. `errors`: why a trial of a node ended early."""

    nodes: tuple[str, ...]
    rates: Mapping[Edge, EdgeRate]
    trips: Mapping[frozenset[str], float]
    errors: Mapping[str, tuple[str, ...]]

    @cached_property
    def _ends(self) -> tuple[Mapping[str, dict[str, EdgeRate]], Mapping[str, dict[str, EdgeRate]]]:
        found: tuple[dict[str, dict[str, EdgeRate]], ...] = ({}, {})
        for (a, b), rate in self.rates.items():
            found[OUT].setdefault(a, {})[b] = rate
            found[IN].setdefault(b, {})[a] = rate
        return found[OUT], found[IN]

    @cached_property
    def _near(self) -> Mapping[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for (a, b), trip in self.trips.items():
            found.setdefault(a, {})[b] = trip
            found.setdefault(b, {})[a] = trip
        return found

    def at(self, node: str, end: int) -> Mapping[str, EdgeRate]:
        """The partners to which a node sends (OUT) or from which it receives (IN)."""
        return self._ends[end].get(node, {})

    @cached_property
    def _best(self) -> tuple[Mapping[str, list[tuple[float, str]]], ...]:
        """The two best rates of each node at each end, with the partners."""

        def two(near: Mapping[str, EdgeRate]) -> list[tuple[float, str]]:
            return heapq.nlargest(2, ((rate.rate, other) for other, rate in near.items()))

        return tuple({node: two(near) for node, near in ends.items()} for ends in self._ends)

    def best_elsewhere(self, node: str, end: int, partner: str) -> float:
        """The best rate of a node at one of its ends with anybody but this partner; 0.0 where there
        is none."""
        return next((r for r, other in self._best[end].get(node, ()) if other != partner), 0.0)

    def trips_at(self, node: str) -> Mapping[str, float]:
        return self._near.get(node, {})


def pair_speeds(nodes: Mapping[int, str], trials: Mapping[str, Sequence[Trial]]) -> PairSpeeds:
    """The best of each edge between the nodes, which are given by their numbers. A number that is
    none, or of a node that is none, is left out."""
    rates: dict[tuple[int, int], tuple[float, float]] = {}
    trips: dict[tuple[int, int], float] = {}
    # of each trial the sender's own count, or what it had told the receiver by then
    segments: dict[tuple[int, int, int, bool], tuple[int, int]] = {}
    errors: dict[str, tuple[str, ...]] = {}
    for number, node in sorted(nodes.items()):
        for trial in trials.get(node, ()):
            peer, moved = trial.peer, trial.moved
            if peer not in nodes or peer == number:
                continue
            if moved.error and moved.error not in errors.get(node, ()):
                errors[node] = (*errors.get(node, ()), moved.error)
            burst = moved.inward
            if burst is not None and 0 < burst.rate < math.inf:
                rate, able = rates.get((peer, number), (0.0, 0.0))
                rates[peer, number] = max(burst.rate, rate), max(burst.able, able)
                counted = peer, number, trial.round, trial.again
                told = burst.sent, burst.resent
                segments[counted] = max(NOTHING, segments.get(counted, NOTHING), told)
            counted = number, peer, trial.round, trial.again
            told = moved.sent, moved.resent
            segments[counted] = max(NOTHING, segments.get(counted, NOTHING), told)
            if moved.latency is not None and 0 < moved.latency < math.inf:
                pair = (peer, number) if peer < number else (number, peer)
                trips[pair] = min(moved.latency, trips.get(pair, math.inf))
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for (a, b, *_), (sent, resent) in segments.items():
        before = sums.get((a, b), NOTHING)
        sums[a, b] = before[0] + sent, before[1] + resent
    in_order = {}
    for (a, b), (rate, able) in sorted(rates.items()):
        trip = trips.get((a, b) if a < b else (b, a), 0.0)
        far = trip > BURST_MOST / BURST_TRIPS
        sent, resent = sums.get((a, b), NOTHING)
        enough = sent >= SEGMENTS or resent >= RESENT
        lost = resent / sent if enough and 0 <= resent <= sent > 0 else None
        started = rate > STARTED * rate_of_start(trip)
        in_order[nodes[a], nodes[b]] = EdgeRate(rate, able, lost, far, started)
    by_name = {frozenset((nodes[a], nodes[b])): trip for (a, b), trip in trips.items()}
    return PairSpeeds(tuple(name for _, name in sorted(nodes.items())), in_order, by_name, errors)


def stopped(
    nodes: Mapping[int, str], trials: Mapping[str, Sequence[Trial]]
) -> Mapping[Edge, tuple[int, ...]]:
    """Edges of which each of at least two connections carries about as many bytes and then nothing
    more, though the sender's kernel sends the next ones again -> how many bytes each carried. A
    sender without a CPU sends nothing again."""
    again = {
        (number, trial.peer, trial.round, trial.again): trial.moved.resent
        for number, node in nodes.items()
        for trial in trials.get(node, ())
    }
    carried: dict[Edge, list[int]] = {}
    moved: set[Edge] = set()
    for number, node in sorted(nodes.items()):
        for trial in trials.get(node, ()):
            if trial.peer not in nodes or trial.peer == number or trial.moved.inward is None:
                continue
            edge = nodes[trial.peer], node
            resent = again.get((trial.peer, number, trial.round, trial.again), 0)
            if trial.moved.still >= STILL and trial.moved.came >= SOME and resent >= REPEATED:
                carried.setdefault(edge, []).append(trial.moved.came)
            else:
                moved.add(edge)
    return {
        edge: tuple(counts)
        for edge, counts in carried.items()
        if edge not in moved and len(counts) > 1 and max(counts) < ALIKE * min(counts)
    }


def _medians_of_others(values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Each node with the median of the others, where there are at least two others."""
    ranked = sorted(values.values())
    if len(ranked) < 3:
        return
    for node, own in values.items():
        at = bisect.bisect_left(ranked, own)
        # the middle of what is left when this one is taken out
        low, high = (len(ranked) - 2) // 2, (len(ranked) - 1) // 2
        middle = ranked[low + (low >= at)], ranked[high + (high >= at)]
        yield node, middle[0] if middle[0] == middle[1] else statistics.fmean(middle)


def slow_nodes(seen: PairSpeeds) -> dict[str, tuple[int, ...]]:
    """The nodes whose every edge is slow, and at which end of the edges they are then."""
    found: dict[str, tuple[int, ...]] = {}
    for end in (OUT, IN):
        edges = {n: [r for r in seen.at(n, end).values() if not r.far] for n in seen.nodes}
        best = {n: max(r.rate for r in rates) for n, rates in edges.items() if rates}
        # the median is at most the best of all, and who had to wait for a CPU is able to do more
        if not best or min(best.values()) >= min(FAST, SLOW * max(best.values())):
            continue
        for node, usual in _medians_of_others(best):
            able = max(r.able for r in edges[node])
            if len(edges[node]) > 1 and able < min(FAST, SLOW * usual):
                found[node] = (*found.get(node, ()), end)
    return found


def limited(seen: PairSpeeds, node: str, ends: Collection[int]) -> bool:
    """Whether a node is as fast with each partner, as a shaper makes it; what is lost at random
    slows some connections more than others."""
    rates = [[r.rate for r in seen.at(node, end).values()] for end in ends]
    return all(len(some) > 2 and max(some) <= STEADY * min(some) for some in rates)


@dataclass(frozen=True, slots=True)
class BelowFloor:
    """Who is below a floor: the nodes that don't reach it with any partner, though two of those
    reach it elsewhere, and the edges of which that can't be said."""

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]


def below(seen: PairSpeeds, floor: float) -> BelowFloor:
    """`floor`: bytes per second."""
    if floor <= 0:
        return BelowFloor((), ())
    near = {edge: rate.able for edge, rate in seen.rates.items() if not rate.far}
    fine = {end: {edge[end] for edge, able in near.items() if able >= floor} for end in (OUT, IN)}
    nodes = [
        node
        for node in seen.nodes
        if any(
            node not in fine[end]
            and sum(e[1 - end] in fine[1 - end] for e in near if e[end] == node) > 1
            for end in (OUT, IN)
        )
    ]
    rest = [e for e, able in near.items() if able < floor and not set(e) & set(nodes)]
    return BelowFloor(tuple(nodes), tuple(rest))


@dataclass(frozen=True, slots=True)
class SlowLinks:
    """Slow edges with what their ends do elsewhere: `certain` links, and those that may as well be
    one of their ends."""

    certain: Mapping[Edge, float]
    unclear: Mapping[Edge, float]


def _elsewhere(seen: PairSpeeds, edge: Edge) -> list[list[EdgeRate]]:
    """What its sender sends to others, and what its receiver receives from others."""
    a, b = edge
    return [
        [rate for partner, rate in seen.at(node, end).items() if partner != other]
        for node, end, other in ((a, OUT, b), (b, IN, a))
    ]


def slow_links(seen: PairSpeeds) -> SlowLinks:
    """The edges that are slower than what both or one of their ends do elsewhere."""
    certain: dict[Edge, float] = {}
    unclear: dict[Edge, float] = {}
    for pair, edge in seen.rates.items():
        if edge.far or edge.able >= FAST:
            continue
        a, b = pair
        best = seen.best_elsewhere(a, OUT, b), seen.best_elsewhere(b, IN, a)
        known = [rate for rate in best if rate]
        if not known and edge.able < BROKEN:
            unclear[pair] = 0.0
        elif known and edge.able < min(FAST, SLOW * min(known)):
            (certain if len(known) == 2 else unclear)[pair] = min(known)
    return SlowLinks(certain, unclear)


def all_broken(seen: PairSpeeds) -> bool:
    """Whether every measured edge is slower than any cluster's network. Over long ways a burst is
    that slow by itself; where a queue makes it long, a limit makes all alike."""
    near = [rate.able for rate in seen.rates.values() if not rate.far]
    if near:
        return max(near) < BROKEN
    able = [rate.able for rate in seen.rates.values()]
    queued = bool(able) and all(rate.started for rate in seen.rates.values())
    return queued and max(able) < min(BROKEN, ALIKE * min(able))


def far_nodes(seen: PairSpeeds) -> dict[str, float]:
    """The nodes with a long round trip to every partner, with the median of the others."""
    if all(trip <= FAR_SECONDS for trip in seen.trips.values()):
        return {}
    nearest = {n: min(trips.values()) for n in seen.nodes if (trips := seen.trips_at(n))}
    return {
        node: usual
        for node, usual in _medians_of_others(nearest)
        if len(seen.trips_at(node)) > 1 and nearest[node] > max(FAR_SECONDS, FAR * usual)
    }


def far_links(seen: PairSpeeds) -> dict[Edge, float]:
    """The pairs that are far from each other, and both near to others, with the longer of those."""
    order = {node: number for number, node in enumerate(seen.nodes)}
    found = {}
    for pair, trip in seen.trips.items():
        if trip <= FAR_SECONDS:
            continue
        a, b = sorted(pair, key=order.__getitem__)
        near = [
            min((t for partner, t in seen.trips_at(n).items() if partner not in pair), default=0.0)
            for n in (a, b)
        ]
        if all(near) and trip > max(FAR_SECONDS, FAR * max(near)):
            found[a, b] = max(near)
    return found


def lossy_nodes(seen: PairSpeeds) -> dict[str, tuple[int, ...]]:
    """The nodes that lose segments on every edge, sending or receiving, while the others don't."""
    found: dict[str, tuple[int, ...]] = {}
    if all(rate.lost is None or rate.lost < LOSS for rate in seen.rates.values()):
        return found
    for end in (OUT, IN):
        lost = {n: _losses(seen.at(n, end).values()) for n in seen.nodes}
        least = {n: min(shares) for n, shares in lost.items() if len(shares) > 1}
        for node, usual in _medians_of_others(least):
            if least[node] >= LOSS and usual < least[node] * LOSS_OTHERS:
                found[node] = (*found.get(node, ()), end)
    return found


def lossy_links(seen: PairSpeeds) -> dict[Edge, float]:
    """The edges that lose segments while both their ends have edges that don't."""
    return {
        pair: edge.lost
        for pair, edge in seen.rates.items()
        if edge.lost is not None
        and edge.lost >= LOSS
        and all(
            (shares := _losses(rates)) and min(shares) < edge.lost * LOSS_OTHERS
            for rates in _elsewhere(seen, pair)
        )
    }


def lossy_everywhere(seen: PairSpeeds) -> dict[Edge, float]:
    """The edges that lose segments, where no edge is much better and nobody can be named."""
    shares = {p: rate.lost for p, rate in seen.rates.items() if rate.lost is not None}
    worst = max(shares.values(), default=0.0)
    alone = len(seen.nodes) == 2 or min(shares.values(), default=0.0) >= worst * LOSS_OTHERS
    return dict(sorted((p, n) for p, n in shares.items() if n >= LOSS_ALONE)) if alone else {}


def _losses(rates: Iterable[EdgeRate]) -> list[float]:
    return [rate.lost for rate in rates if rate.lost is not None]


def groups(nodes: Sequence[str], apart: Sequence[Edge], joined: Sequence[Edge]) -> list[list[str]]:
    """The nodes as islands, where all the edges `apart` lie between islands and all that are
    `joined` within; empty when there are no such islands, or one of them is a single node."""
    island = {n: n for n in nodes}
    for a, b in joined:
        old, new = island[a], island[b]
        island = {n: new if i == old else i for n, i in island.items()}
    found: dict[str, list[str]] = {}
    for n, i in island.items():
        found.setdefault(i, []).append(n)
    split = all(island[a] != island[b] for a, b in apart)
    return list(found.values()) if split and all(len(g) > 1 for g in found.values()) else []


def measured_pairs(seen: PairSpeeds) -> int:
    """How many pairs of nodes have a rate in at least one direction."""
    return len({frozenset(edge) for edge in seen.rates})


def unmeasured(seen: PairSpeeds, deaf: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The nodes, of those that received nothing, whose bytes nobody received either, and why."""
    for node in deaf:
        if not seen.at(node, OUT):
            yield node, ", ".join(seen.errors.get(node, (ABSENT,)))
