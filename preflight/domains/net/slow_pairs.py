"""Which node or which link is behind the rest, from numbers of pairs. Pure.

A node is only as slow as its best edge: the others may be their partners' fault. A link is slow
where both its ends are better elsewhere. What only one of them can show is neither.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from preflight.domains.net.rounds import ABSENT, Trial
from preflight.domains.net.tcp_throughput import BURST_SECONDS

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

FAR, FAR_SECONDS = 10.0, 0.001

LOSS, LOSS_OTHERS = 0.02, 0.25
"""Share of segments sent again, and what the others may have of that: less than a quarter."""

TRIPS_OF_BURST = 5
"""Round trips in a burst, without which TCP has not found its speed."""

SEGMENTS, RESENT = 1000, 20
"""So many make a share of them a number: sent at all, or sent again."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A directed edge, bytes a second. `able`: had nobody waited for a CPU; what is called slow is
    slow even then. `lost`: the share of segments sent again; None: too few to tell. `far`: the way
    is so long that a burst is over before it can show what else holds it up."""

    rate: float
    able: float
    lost: float | None = None
    far: bool = False


@dataclass(frozen=True)
class Fabric:
    """All that was measured, by the nodes' names. `errors`: why a trial of a node ended early."""

    nodes: tuple[str, ...]
    rates: Mapping[Edge, Rate]
    trips: Mapping[frozenset[str], float]
    errors: Mapping[str, tuple[str, ...]]

    @cached_property
    def _ends(self) -> tuple[Mapping[str, dict[str, Rate]], Mapping[str, dict[str, Rate]]]:
        found: tuple[dict[str, dict[str, Rate]], ...] = ({}, {})
        for (a, b), rate in self.rates.items():
            found[OUT].setdefault(a, {})[b] = rate
            found[IN].setdefault(b, {})[a] = rate
        return found[OUT], found[IN]

    @cached_property
    def _near(self) -> Mapping[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for pair, trip in self.trips.items():
            for node in pair:
                found.setdefault(node, {})[next(iter(pair - {node}))] = trip
        return found

    def at(self, node: str, end: int) -> Mapping[str, Rate]:
        """The partners to which a node sends (OUT) or from which it receives (IN)."""
        return self._ends[end].get(node, {})

    def trips_at(self, node: str) -> Mapping[str, float]:
        return self._near.get(node, {})


def fabric(nodes: Mapping[int, str], trials: Mapping[str, Sequence[Trial]]) -> Fabric:
    """The best of each edge between the nodes, which are given by their numbers. A number that is
    none, or of a node that is none, is left out."""
    rates: dict[tuple[int, int], Rate] = {}
    trips: dict[frozenset[str], float] = {}
    # the sender's own count, or what it had told the receiver by then
    segments: dict[tuple[int, int], dict[tuple[int, bool], tuple[int, int]]] = {}

    def counted(edge: tuple[int, int], trial: Trial, sent: int, resent: int) -> None:
        one, key = segments.setdefault(edge, {}), (trial.round, trial.again)
        one[key] = max(one.get(key, (0, 0)), (sent, resent))

    errors: dict[str, tuple[str, ...]] = {}
    for number, node in sorted(nodes.items()):
        for trial in trials.get(node, ()):
            if trial.peer not in nodes or trial.peer == number:
                continue
            peer, moved = trial.peer, trial.moved
            if moved.error and moved.error not in errors.get(node, ()):
                errors[node] = (*errors.get(node, ()), moved.error)
            if moved.inward is not None and 0 < moved.inward.rate < math.inf:
                burst, before = moved.inward, rates.get((peer, number), Rate(0.0, 0.0))
                made = Rate(max(burst.rate, before.rate), max(burst.able, before.able))
                rates[peer, number] = made
                counted((peer, number), trial, burst.sent, burst.resent)
            counted((number, peer), trial, moved.sent, moved.resent)
            if moved.latency is not None and 0 < moved.latency < math.inf:
                pair = frozenset((node, nodes[peer]))
                trips[pair] = min(moved.latency, trips.get(pair, math.inf))
    in_order = {}
    for (a, b), rate in sorted(rates.items(), key=lambda r: r[0]):
        trip = trips.get(frozenset((nodes[a], nodes[b])), 0.0)
        far = trip > BURST_SECONDS / TRIPS_OF_BURST
        counts = segments.get((a, b), {}).values()
        sent, resent = sum(s for s, _ in counts), sum(r for _, r in counts)
        told = sent >= SEGMENTS or resent >= RESENT
        lost = resent / sent if told and 0 <= resent <= sent > 0 else None
        in_order[nodes[a], nodes[b]] = replace(rate, far=far, lost=lost)
    return Fabric(tuple(name for _, name in sorted(nodes.items())), in_order, trips, errors)


def slow_nodes(seen: Fabric) -> dict[str, tuple[int, ...]]:
    """The nodes whose every edge is slow, and at which end of the edges they are then."""
    found: dict[str, tuple[int, ...]] = {}
    for end in (OUT, IN):
        edges = {n: tuple(r for r in seen.at(n, end).values() if not r.far) for n in seen.nodes}
        best = {n: max(r.rate for r in rates) for n, rates in edges.items() if rates}
        for node in best:
            others = [rate for n, rate in best.items() if n != node]
            if len(edges[node]) < 2 or len(others) < 2:
                continue
            if max(r.able for r in edges[node]) < min(FAST, SLOW * statistics.median(others)):
                found[node] = (*found.get(node, ()), end)
    return found


@dataclass(frozen=True, slots=True)
class Below:
    """Who is below a floor: the nodes that don't reach it with any partner, though two of those
    reach it elsewhere, and the edges of which that can't be said."""

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]


def below(seen: Fabric, floor: float) -> Below:
    """`floor`: bytes a second."""
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
    return Below(tuple(nodes), tuple(rest))


@dataclass(frozen=True, slots=True)
class Links:
    """Slow edges with what their ends do elsewhere: `certain` links, and those that may as well be
    one of their ends."""

    certain: Mapping[Edge, float]
    unclear: Mapping[Edge, float]


def slow_links(seen: Fabric) -> Links:
    certain: dict[Edge, float] = {}
    unclear: dict[Edge, float] = {}
    for (a, b), edge in seen.rates.items():
        if edge.far:
            continue
        elsewhere = [
            max(
                (r.rate for partner, r in seen.at(node, end).items() if partner != other),
                default=0.0,
            )
            for node, end, other in ((a, OUT, b), (b, IN, a))
        ]
        known = [rate for rate in elsewhere if rate]
        if not known and edge.able < BROKEN:
            unclear[a, b] = 0.0
        elif known and edge.able < min(FAST, SLOW * min(known)):
            (certain if len(known) == 2 else unclear)[a, b] = min(known)
    return Links(certain, unclear)


def all_broken(seen: Fabric) -> bool:
    return bool(seen.rates) and all(r.able < BROKEN for r in seen.rates.values())


def far_nodes(seen: Fabric) -> dict[str, float]:
    """The nodes that are far from everybody, with the median of the others."""
    trips = {n: seen.trips_at(n) for n in seen.nodes}
    best = {n: min(of.values()) for n, of in trips.items() if of}
    found = {}
    for node, trip in best.items():
        others = [t for n, t in best.items() if n != node]
        if len(trips[node]) > 1 and len(others) > 1:
            usual = statistics.median(others)
            if trip > max(FAR_SECONDS, FAR * usual):
                found[node] = usual
    return found


def far_links(seen: Fabric) -> dict[Edge, float]:
    """The pairs that are far from each other, and both near to others, with the longer of those."""
    order = {node: number for number, node in enumerate(seen.nodes)}
    found = {}
    for pair, trip in seen.trips.items():
        a, b = sorted(pair, key=order.__getitem__)
        near = [
            min((t for partner, t in seen.trips_at(n).items() if partner not in pair), default=0.0)
            for n in (a, b)
        ]
        if all(near) and trip > max(FAR_SECONDS, FAR * max(near)):
            found[a, b] = max(near)
    return found


def lossy_nodes(seen: Fabric) -> dict[str, tuple[int, ...]]:
    """The nodes that lose segments on every edge, at one end or the other, as nobody else does."""
    found: dict[str, tuple[int, ...]] = {}
    for end in (OUT, IN):
        lost = {
            n: [r.lost for r in seen.at(n, end).values() if r.lost is not None] for n in seen.nodes
        }
        least = {n: min(shares) for n, shares in lost.items() if len(shares) > 1}
        for node, share in least.items():
            others = [s for n, s in least.items() if n != node]
            alone = len(others) > 1 and statistics.median(others) < share * LOSS_OTHERS
            if share >= LOSS and alone:
                found[node] = (*found.get(node, ()), end)
    return found


def lossy_links(seen: Fabric) -> dict[Edge, float]:
    """The edges that lose segments while both their ends have edges that don't."""
    found = {}
    for (a, b), edge in seen.rates.items():
        if edge.lost is None or edge.lost < LOSS:
            continue
        elsewhere = [
            [r.lost for p, r in seen.at(node, end).items() if p != other and r.lost is not None]
            for node, end, other in ((a, OUT, b), (b, IN, a))
        ]
        if all(shares and min(shares) < edge.lost * LOSS_OTHERS for shares in elsewhere):
            found[a, b] = edge.lost
    return found


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


def measured_pairs(seen: Fabric) -> int:
    return len({frozenset(edge) for edge in seen.rates})


def unmeasured(seen: Fabric, deaf: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Those of the nodes that got no bytes whose bytes nobody got either, and why."""
    for node in deaf:
        if not seen.at(node, OUT):
            yield node, ", ".join(seen.errors.get(node, (ABSENT,)))
