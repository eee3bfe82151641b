"""Which nodes test each other, so that every node is tested in a constant number of rounds. Pure.

Nodes are numbered 0 to count - 1; all of them compute the same plan, so it need not be sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from preflight.frozen import dataclass

ALL = 64
"""Nodes up to which every directed edge is tested."""

OFFSETS = (1, 2, 3, 5, 8, 13, 21)
"""Above that, whom a node dials: those so many places further on. A bad node is in 2 x 7 edges with
14 different others, each of whom has 12 or more edges without it: it can't be taken for a link, nor
one of the others for it."""


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


def dials(index: int, count: int) -> tuple[int, ...]:
    """The nodes that this one dials, each once, beginning with its next neighbour: so no node is
    everybody's first."""
    if count <= ALL:
        return tuple((index + step) % count for step in range(1, count))
    return tuple((index + step) % count for step in OFFSETS)


def dialled_by(index: int, count: int) -> tuple[int, ...]:
    """The nodes that dial this one."""
    if count <= ALL:
        return tuple((index - step) % count for step in range(1, count))
    return tuple((index - step) % count for step in OFFSETS)


def edges(count: int) -> int:
    """How many directed edges are tested."""
    return count * len(dials(0, count)) if count > 1 else 0


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
