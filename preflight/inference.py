"""Inference across ranks, apart from observation. Pure: no I/O, no clock, no torch.

What is concluded here must hold for worlds that nobody has seen yet, so every function says what
it can not tell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from preflight.frozen import dataclass
from preflight.model import Mark

if TYPE_CHECKING:
    from fractions import Fraction

V = TypeVar("V", bound=Hashable)
Edge = tuple[str, str]

MAJORITY_OF = 3
"""Parties that it takes for one of them to be the odd one: two only differ."""

ENOUGH = 4
"""Numbers that it takes for one of them to be an outlier: of three, one is always farthest off."""

FAR = 5.0
"""Standard deviations (as the MAD tells them) that an outlier is off. Of a thousand healthy nodes
with normal noise none is; the MAD of a few numbers is itself so uncertain that 3 would not do."""

SIGMA = 1.4826
"""Standard deviations of normal noise in one MAD."""


@dataclass(frozen=True, slots=True)
class Late:
    """Who has not reached the mark that others wait at.

    mark      the furthest mark that anybody reached
    waiting   the ranks that reached it
    behind    rank -> the last mark that it reached, empty when it never gave a sign
    clear     those behind are the fewer, or one of two: else it may be the others who went astray
    """

    mark: str
    waiting: tuple[int, ...]
    behind: Mapping[int, str]
    clear: bool


def late(marks: Mapping[int, tuple[Mark, ...]]) -> Late | None:
    """Who holds up a world in which all ranks take the same steps and mark each before they do it.

    The innocent ranks wait, and complain; the guilty one is silent. So the ranks that came least
    far are late, if anybody came further. Those between are not named: they may wait themselves (a
    store's server waits for its last client while the other clients have gone on to the next step).

    None when all stand at the same mark, nobody gave a sign, or there is only one rank: then the
    marks can't tell. Two parties are no majority, but a rank that has not reached the mark at which
    the other one waits is evidence enough.
    """
    paths = {rank: _numbered(m.name for m in seen) for rank, seen in marks.items()}
    # the longest path gives the order; a mark that only others have doesn't count as progress
    longest: tuple[tuple[str, int], ...] = max(paths.values(), key=len, default=())
    order = {step: i for i, step in enumerate(longest)}
    reached = {r: max((order.get(s, -1) for s in path), default=-1) for r, path in paths.items()}
    furthest, least = max(reached.values(), default=-1), min(reached.values(), default=-1)
    if least == furthest:
        return None
    names = [name for name, _ in order]
    waiting = tuple(sorted(r for r, at in reached.items() if at == furthest))
    behind = {r: names[at] if at >= 0 else "" for r, at in sorted(reached.items()) if at == least}
    clear = len(behind) * 2 < len(reached) or len(reached) == 2
    return Late(names[furthest], waiting, behind, clear)


def _numbered(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Each name with how often it came before, so that a repeated mark is a step of its own."""
    before: Counter[str] = Counter()
    found = []
    for name in names:
        found.append((name, before[name]))
        before[name] += 1
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Consensus(Generic[V]):
    """What most hold, and who does not.

    value     what more than half of at least three hold, or what all hold; None: there is no such
    holders   those who hold it
    odd       the other values -> who holds each; without a majority all of them
    tie       they differ, and nobody can be called the outlier
    """

    value: V | None
    holders: tuple[str, ...]
    odd: Mapping[V, tuple[str, ...]]
    tie: bool


def consensus(values: Mapping[str, V]) -> Consensus[V]:
    """What the parties agree on. Two of them that differ are a tie, however sure one may be."""
    if len(set(values.values())) == 1:  # which is quickly told, and usual among many
        return Consensus(next(iter(values.values())), tuple(values), {}, tie=False)
    lists: dict[V, list[str]] = {}
    for key, value in values.items():
        lists.setdefault(value, []).append(key)
    by_value = {value: tuple(keys) for value, keys in lists.items()}
    if not by_value:
        return Consensus(None, (), {}, tie=False)
    most = max(by_value, key=lambda value: len(by_value[value]))
    holders = by_value[most]
    if len(values) >= MAJORITY_OF and 2 * len(holders) > len(values):
        others = {value: keys for value, keys in by_value.items() if value != most}
        return Consensus(most, holders, others, tie=False)
    return Consensus(None, (), by_value, tie=True)


@dataclass(frozen=True, slots=True)
class Outliers:
    """Who is far from the median. `spread` is the standard deviation of the others as the MAD tells
    it; `odd` is key -> its number; `enough` says whether there were numbers enough to tell."""

    median: float
    spread: float
    odd: Mapping[str, float]
    enough: bool


def outliers(
    numbers: Mapping[str, float], *, floor: float = 0.2, low: bool = True, high: bool = True
) -> Outliers:
    """Numbers that lie both outside of the noise and at least `floor` of the median away from it:
    where all others are equal to the last digit, a hair is no fault. They are always fewer than
    half. Of a median of 0 there are no parts, so nothing is odd; what is not a number is ignored.
    """
    from statistics import median  # with fractions and decimal; most runs compare no numbers

    finite = {key: float(n) for key, n in numbers.items() if math.isfinite(n)}
    if not finite:
        return Outliers(0.0, 0.0, {}, enough=False)
    ranked = sorted(finite.values())
    middle = median(ranked)
    spread = 0.0
    if ranked[0] != ranked[-1]:
        spread = SIGMA * median(abs(n - middle) for n in ranked)
    if len(finite) < ENOUGH:
        return Outliers(middle, spread, {}, enough=False)
    least = max(FAR * spread, floor * abs(middle))
    if max(middle - ranked[0], ranked[-1] - middle) < least:
        return Outliers(middle, spread, {}, enough=True)
    odd = {
        key: n
        for key, n in finite.items()
        if middle and abs(n - middle) >= least and n != middle and (low if n < middle else high)
    }
    return Outliers(middle, spread, odd, enough=True)


INBOUND, OUTBOUND, BOTH = "inbound", "outbound", "both"


@dataclass(frozen=True, slots=True)
class Blamed:
    """Who is at fault for edges that failed. Every failed edge is at one of `nodes` or in one of
    the other two.

    nodes          closed by themselves, whoever asks; `at` says which way
    links          failed between two nodes that are both fine with others in that direction
    undetermined   may be either node's fault, or that of what is between them
    """

    nodes: tuple[str, ...]
    links: tuple[Edge, ...]
    undetermined: tuple[Edge, ...]
    at: Mapping[str, str]


def blame(failed: Collection[Edge], tested: Collection[Edge]) -> Blamed:
    """The fewest faults that explain which directed edges (from, to) failed.

    A node is closed in one direction when most of its edges there failed, and at least two of them
    with others who do better than it: who fails as often as it does himself is no witness. So where
    nothing works, where two halves are cut from each other, or with two nodes, nobody is named. A
    node that only some of its peers can't reach shows as that many links.
    """
    bad = {edge for edge in failed if edge[0] != edge[1]}
    good = {edge for edge in tested if edge[0] != edge[1]} - bad
    sends, gets = _shares(bad, good, 0), _shares(bad, good, 1)
    at: dict[str, str] = {}
    for mine, theirs, end, way in ((gets, sends, 1, INBOUND), (sends, gets, 0, OUTBOUND)):
        witnesses = Counter(e[end] for e in bad if theirs[e[1 - end]] < mine[e[end]])
        for node, count in witnesses.items():
            if count >= 2 and 2 * mine[node] > 1:
                at[node] = BOTH if node in at else way
    named = dict(at)
    links, undetermined = [], []
    for edge in sorted(bad):
        sender, getter = edge
        if named.get(sender) in (OUTBOUND, BOTH) or named.get(getter) in (INBOUND, BOTH):
            continue
        if sends[sender] < 1 and gets[getter] < 1:
            links.append(edge)
        elif suspect := next((node for node in edge if node in named), None):
            at[suspect] = BOTH  # its other direction, for which there are too few witnesses
        else:
            undetermined.append(edge)
    return Blamed(tuple(sorted(at)), tuple(links), tuple(undetermined), dict(sorted(at.items())))


def _shares(bad: Collection[Edge], good: Collection[Edge], end: int) -> Mapping[str, Fraction]:
    """Node -> which part of the edges failed that have it at this end (0 sends, 1 gets)."""
    from fractions import Fraction

    failed = Counter(edge[end] for edge in bad)
    worked = Counter(edge[end] for edge in good)
    return {n: Fraction(count, count + worked[n]) for n, count in failed.items()}
