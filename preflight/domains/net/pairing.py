"""Which nodes test each other, so that every node is tested in a constant number of rounds. Pure.

Nodes are numbered 0 to count - 1; all of them compute the same plan, so it need not be sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

from preflight.frozen import dataclass

ALL = 64
"""Nodes up to which every directed edge is tested."""

NEAR = (1, 2, 5)
FAR = 4
"""Above that, whom a node dials: those so many places further on, who mostly hang at the same
switch, and as many as this from anywhere, one of each of so many random rings. A bad node is in 14
edges with 14 others, each of whom has 12 without it: it can't be taken for a link, nor one of the
others for it. docs/scale.md says what else is found, and how surely."""


@dataclass(frozen=True, slots=True)
class NodeNumber:
    """A node's number in a meeting of so many. A report may have other nodes as well, which did not
    come to it: so an observation that names nodes by their numbers says its own, too."""

    number: int
    count: int


def by_number(places: Mapping[str, NodeNumber]) -> dict[int, str]:
    """The names of the nodes by their numbers. Two that claim one number both have none."""
    claims = Counter(place.number for place in places.values())
    return {place.number: name for name, place in places.items() if claims[place.number] == 1}


@lru_cache(2)
def _plan(count: int) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]:
    """Whom each node dials, and who dials it, where not everybody does."""
    to: list[dict[int, None]] = [
        dict.fromkeys((index + step) % count for step in NEAR) for index in range(count)
    ]
    for ring in range(FAR):
        # not by random(): all nodes have to agree, whatever their Python is
        order = sorted(range(count), key=lambda index: _drawn(ring, index))
        for index, number in enumerate(order):
            to[number][order[(index + 1) % count]] = None
    callers: list[list[int]] = [[] for _ in range(count)]
    for number, others in enumerate(to):
        for other in others:
            callers[other].append(number)
    return [*map(tuple, to)], callers


def _drawn(ring: int, index: int) -> bytes:
    return blake2b(b"%d %d" % (ring, index), digest_size=8).digest()


def dials(index: int, count: int) -> tuple[int, ...]:
    """The nodes that this one dials, each once, beginning with its next neighbour: so no node is
    everybody's first."""
    if count <= ALL:
        return tuple((index + step) % count for step in range(1, count))
    return tuple(_plan(count)[0][index])


def dialled_by(index: int, count: int) -> tuple[int, ...]:
    """The nodes that dial this one."""
    if count <= ALL:
        return tuple((index - step) % count for step in range(1, count))
    return tuple(_plan(count)[1][index])


def edges(count: int) -> int:
    """How many directed edges are tested."""
    if count <= ALL:
        return count * (count - 1)
    return sum(map(len, _plan(count)[0]))


def rounds(count: int, most: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """At most `most` rounds of disjoint pairs (a tournament by the circle method): n/2 pairs at a
    time, no pair twice. With an odd count one node rests in each round, every time another one."""
    if count < 2:
        return ()
    even = count + count % 2
    ring = list(range(1, even))
    made = []
    for _ in range(min(most, even - 1)):
        around = [0, *ring]
        pairs = [(around[i], around[even - 1 - i]) for i in range(even // 2)]
        made.append(tuple((min(p), max(p)) for p in pairs if max(p) < count))
        ring = [ring[-1], *ring[:-1]]
    return tuple(made)
