"""What each pair of nodes exchanged, beside what most do: a cell a pair, darker where it is less.

Of a report's own observations, so that a saved one shows the same. Names are never cut: where they
don't fit above a column they are numbered, and where there is no room for cells the slowest pairs
are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from preflight.domains.collectives import pair_bandwidth as pairwise
from preflight.domains.collectives.pair_bandwidth import Exchange, Rates
from preflight.domains.collectives.reference_busbw import gbs
from preflight.domains.net.pairing import Place
from preflight.model import Report, Seen, place_of
from preflight.render.ranges import folded
from preflight.render.style import Line, Look, flow
from preflight.serde import decode

CHECK = "world.bandwidth"
MOST = 32
"""Nodes that a map is drawn of; of more the slowest pairs are listed."""
LISTED = 8
TALL = 4
"""Characters of a name above a column, one below the other; longer ones are numbered."""

LEVELS = (
    (0.9, "·", "dim"),
    (0.75, "░", ""),
    (0.5, "▒", "yellow"),
    (0.25, "▓", "red"),
    (0.0, "█", "bold red"),
)
"""From which part of the median on a cell looks so."""
SELF, NONE = "\\", " "


def heat(report: Report, look: Look) -> Iterator[Line]:
    """The map, where -v asks for it or world.bandwidth has found something; else nothing."""
    found = any(finding.check == CHECK for finding in report.findings)
    if look.quiet or not (look.verbose or found):
        return
    seen = exchanged(report)
    if len(seen.nodes) < 3 or not seen.median:
        return  # of two nodes there is one pair, which the row has
    title = f"{CHECK} · pairs as parts of their median, {gbs(seen.median)}"
    yield from flow(title.split(" · "), look, [(" ", "")], 3)
    drawn = list(_drawn(seen, look)) if len(seen.nodes) <= MOST else []
    yield from drawn or _listed(seen, look)
    yield []


def exchanged(report: Report) -> Rates:
    """The pairs that the report's observations hold; what is none of ours is left out."""
    told: dict[str, tuple[Place, tuple[Exchange, ...]]] = {}
    for key, observation in report.observations.checks.get(CHECK, {}).items():
        value = observation.value if isinstance(observation, Seen) else None
        if isinstance(value, Mapping) and value.get("place") is not None:
            try:
                place = decode(Place, value["place"])
                told[place_of(key)[0]] = place, decode(tuple[Exchange, ...], value.get("pairs"))
            except ValueError:
                continue
    return pairwise.rates(told)


@dataclass(frozen=True, slots=True)
class _Axes:
    """What stands above the columns, what beside the rows, and what tells the one by the other."""

    heads: Sequence[str]
    labels: Sequence[str]
    key: Sequence[str] = ()


def _axes(names: Sequence[str], look: Look) -> _Axes:
    """Whole names beside the rows where they leave every column two blanks."""
    short = _short(names)
    numbered = max(map(len, short)) > TALL
    heads = [str(i) for i in range(1, len(names) + 1)] if numbered else short
    both = [f"{name} {head}" for name, head in zip(names, heads, strict=True)]
    labels = both if numbered else names
    if max(map(len, labels)) + 2 + 2 * len(names) <= look.width:
        return _Axes(heads, labels)
    told = [f"{head} {name}" for name, head in zip(names, heads, strict=True)]
    return _Axes(heads, heads, told if numbered else [folded(names)])


def _short(names: Sequence[str]) -> Sequence[str]:
    """The names without what all of them begin with; a number is not divided."""
    same = names[0]
    while not all(name.startswith(same) for name in names):
        same = same[:-1]
    same = same.rstrip("0123456789")
    rest = [name.removeprefix(same) for name in names]
    return rest if all(rest) else names


def _drawn(seen: Rates, look: Look) -> Iterator[Line]:
    """Rows and columns; nothing where they don't fit."""
    axes = _axes([look.say(node) for node in seen.nodes], look)
    beside = max(map(len, axes.labels)) + 2
    pitch = min(2, (look.width - beside) // len(seen.nodes))
    if pitch < 1:
        return
    tall = max(map(len, axes.heads))
    for row in range(tall):
        letters = [head.rjust(tall)[row].ljust(pitch) for head in axes.heads]
        yield [(" " * beside, ""), ("".join(letters).rstrip(), "bold")]
    for node, label in zip(seen.nodes, axes.labels, strict=True):
        line: Line = [(label.rjust(beside - 1) + " ", "")]
        for other in seen.nodes:
            glyph, style = _cell(seen, node, other, look)
            line.append((glyph.ljust(pitch), style))
        yield line
    told = [f"{glyph} {f'{least:.0%} or more' if least else 'less'}" for least, glyph, _ in LEVELS]
    told = ["tenths of the median; 9: 90% or more"] if look.ascii else told
    yield from flow([*told, "blank: not measured"], look, [("   ", "")], 3)
    if axes.key:
        yield from flow(axes.key, look, [("   ", "")], 3)


def _cell(seen: Rates, node: str, other: str, look: Look) -> tuple[str, str]:
    if node == other:
        return SELF, "dim"
    rate = seen.of(node).get(other)
    if rate is None:
        return NONE, ""
    part = rate / seen.median
    _, glyph, style = next(level for level in LEVELS if part >= level[0])
    return (str(min(int(part * 10), 9)) if look.ascii else glyph), style


def _listed(seen: Rates, look: Look) -> Iterator[Line]:
    """The slowest pairs, where there is no room for all."""
    pairs = sorted(seen.pairs.items(), key=lambda pair: pair[1])
    told = [f"{a} with {b} {rate / seen.median:.0%}" for (a, b), rate in pairs[:LISTED]]
    rest = len(pairs) - LISTED
    told += [f"{rest} more, up to {pairs[-1][1] / seen.median:.0%}"] if rest > 0 else []
    yield from flow([look.say(part) for part in told], look, [("   ", "")], 3)
