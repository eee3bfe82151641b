"""Edges between nodes that fail, and who is to be suspected: what net.mesh and net.payload conclude
in the same way. Pure; the counting is inference.blame's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from preflight.domains.net import pairing
from preflight.domains.net.pairing import NodeNumber
from preflight.frozen import dataclass
from preflight.humanize import plural
from preflight.inference import BOTH, INBOUND, OUTBOUND, blame
from preflight.model import Blame, Confidence, Kind, Subject, Topology, World

Pair = tuple[str, str]

ALL, SPLIT, NODE, LINK, EITHER = "all", "split", "node", "link", "either"

APART = 3
"""Links that each get a finding of their own."""
NAMED = 16
"""Edges that one finding has as its subjects."""


UNLIKELY = 0.01
"""What does not happen by chance."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """What a set of failed edges points at.

    what     ALL: every edge between three or more nodes fails; SPLIT: groups that work in
             themselves don't reach each other; NODE; LINK: both ends work with others; EITHER:
             nothing tells what is between them from its ends
    names    the node, or the ends of the edges, sorted; of a SPLIT the groups
    edges    the failed edges that it accounts for
    at       of a NODE: INBOUND, OUTBOUND or BOTH
    """

    what: str
    names: tuple[str, ...]
    edges: tuple[Pair, ...]
    at: str = ""

    def subjects(self, topology: Topology) -> tuple[Subject, ...]:
        if self.what in (ALL, SPLIT):
            return (Subject(Kind.JOB),)
        if self.what == NODE:
            (name,) = self.names
            return (Subject(Kind.NODE, name, ranks=topology.ranks_of(name)),)
        return link_subjects(self.edges, topology)

    def has(self, edge: Pair) -> bool:
        """Whether an edge is the suspected node's in the suspected direction."""
        ends = {INBOUND: edge[1:], OUTBOUND: edge[:1]}.get(self.at, edge)
        return self.names[0] in ends

    def where(self, tested: Collection[Pair]) -> str:
        """Its edges in words, and how many like them were tested."""
        alike = [e for e in tested if self.what != NODE or self.has(e)]
        number = f"{len(self.edges)} of {plural(len(alike), 'connection')}"
        if self.what == ALL:
            return f"{number} between {len(self.names)} nodes that did meet"
        if self.what == SPLIT:
            return f"{number} between the groups {' | '.join(g[:60] for g in self.names[:4])}"
        if self.what == NODE:
            at = {BOTH: "into and out of", INBOUND: "into"}.get(self.at, "out of")
            return f"{number} {at} {self.names[0]}"
        return describe_edges(self.edges)

    @property
    def ends(self) -> Pair:
        """One of its edges as (the one that is suspected, another), for templates of an advice."""
        node, to = self.edges[0]
        return (to, node) if self.what == NODE and to == self.names[0] else (node, to)

    def alternatives(self, at_end: str) -> tuple[str, ...]:
        """Of an EITHER: each end with what may be wrong there, and what lies between."""
        if self.what != EITHER:
            return ()
        return (*(f"{at_end} of {n}" for n in self.names[:4]), "what is between them")

    @property
    def confidence(self) -> Confidence:
        known = {LINK: Confidence.CERTAIN, EITHER: Confidence.POSSIBLE}
        return known.get(self.what, Confidence.LIKELY)

    @property
    def blame(self) -> Blame:
        return Blame.NODE if self.what == NODE else Blame.NETWORK


def link_subjects(edges: Sequence[Pair], topology: Topology) -> tuple[Subject, ...]:
    """Edges as subjects; the job where they are too many to be named."""
    if len(edges) > NAMED:
        return (Subject(Kind.JOB),)
    return tuple(
        Subject(Kind.LINK, a, to=b, ranks=(*topology.ranks_of(a), *topology.ranks_of(b)))
        for a, b in edges
    )


def describe_edges(edges: Sequence[Pair]) -> str:
    """`n1->n2, n2->n1`, the first few."""
    more = f" and {len(edges) - 4} more" if len(edges) > 4 else ""
    return ", ".join(f"{a}->{b}" for a, b in edges[:4]) + more


def suspects(failed: Collection[Pair], tested: Collection[Pair]) -> Iterator[Suspect]:
    """The fewest that account for all failed edges."""
    if not failed:
        return
    nodes = sorted({name for edge in tested for name in edge})
    if len(nodes) > 2 and set(failed) == set(tested):
        yield Suspect(ALL, tuple(nodes), tuple(sorted(failed)))
        return
    groups = _groups(nodes, set(tested) - set(failed))
    side = {name: group for group in groups for name in group}
    if all(1 < len(g) < len(nodes) for g in groups) and all(
        (side[a] != side[b]) == ((a, b) in failed) for a, b in tested
    ):
        yield Suspect(SPLIT, tuple(", ".join(g) for g in groups), tuple(sorted(failed)))
        return
    blamed = blame(failed, tested)
    for name in blamed.nodes:
        at = blamed.at.get(name, BOTH)
        one = Suspect(NODE, (name,), (), at)
        yield replace(one, edges=tuple(e for e in sorted(failed) if one.has(e)))
    between: dict[Pair, list[Pair]] = {}
    for a, b in blamed.links:
        between.setdefault((min(a, b), max(a, b)), []).append((a, b))
    if len(between) > APART:
        parties = tuple(sorted({name for edge in blamed.links for name in edge}))
        yield Suspect(LINK, parties, tuple(sorted(blamed.links)))
    else:
        for ends, both in sorted(between.items()):
            yield Suspect(LINK, ends, tuple(sorted(both)))
    if blamed.undetermined:
        parties = tuple(sorted({name for edge in blamed.undetermined for name in edge}))
        yield Suspect(EITHER, parties, tuple(sorted(blamed.undetermined)))


def shared_by(partly: Collection[Pair], tested: Collection[Pair], luck: float) -> list[Suspect]:
    """Who has in common the edges that lose a part of their connections. `luck` is the chance that
    an edge of the same trouble shows none of it: one node that is at an end of all of them is
    enough, and a link is told from its ends by their other edges, where those can't all have been
    lucky."""
    common = set.intersection(*({*edge} for edge in partly)) if partly else set()
    others = {name for edge in partly for name in edge} - common
    if len(common) == 1 and len(others) > 1:
        return [Suspect(NODE, tuple(common), tuple(sorted(partly)), BOTH)]
    if len(common) == 2:
        fine = [sum(name in e for e in tested if e not in partly) for name in common]
        what = LINK if luck ** min(fine) < UNLIKELY else EITHER
        return [Suspect(what, tuple(sorted(common)), tuple(sorted(partly)))]
    # either direction of a connection has packets of both
    return list(suspects({*partly, *((b, a) for a, b in partly)} & {*tested}, tested))


def _groups(nodes: Sequence[str], good: Collection[Pair]) -> list[tuple[str, ...]]:
    """The nodes that reach each other by way of others, in any direction."""
    root = {name: name for name in nodes}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    for a, b in good:
        root[find(a)] = find(b)
    groups: dict[str, list[str]] = {}
    for name in nodes:
        groups.setdefault(find(name), []).append(name)
    return sorted(tuple(g) for g in groups.values())


class Placed(Protocol):
    """An observation that says which number its node had."""

    @property
    def place(self) -> NodeNumber: ...


P = TypeVar("P", bound=Placed)


def names_by_number(world: World[P]) -> dict[int, str]:
    """The nodes of an observation's numbers, as far as they have one themselves."""
    return world.once(_names_by_number)


def _names_by_number(world: World[P]) -> dict[int, str]:
    return pairing.by_number({here.node: seen.place for here, seen in world.each()})


def untested_edges(world: World[P], known: Collection[Pair]) -> list[Pair]:
    """The edges of the plan between two nodes that both answered, of which nothing is known."""
    names = names_by_number(world)
    plan = (
        (name, names[to])
        for number, name in sorted(names.items())
        for to in pairing.dials(number, world.seen[name].place.count)
        if to in names
    )
    return [edge for edge in plan if edge not in known]
