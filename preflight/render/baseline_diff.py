"""What `baseline diff` prints: what changed from one report to another, folded by nodes.

The JSON document has all numbers, the screen those that count as changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from preflight import __version__
from preflight.baseline.diff import CHECKS, NOISE, PARTS, Change, Difference, Number
from preflight.humanize import duration, plural, size
from preflight.model import Report, Status
from preflight.nodeset import folded
from preflight.render.human import PIPED, printed, title
from preflight.render.style import STYLES, WORDS, Line, Look, flow
from preflight.sanitize import LONGEST
from preflight.serde import encode

VERSION = 1
"""Of the JSON document: fields may be added to it, none is ever taken away."""

NAME = 18
"""Columns for what something is called."""
NUMBER = 42
"""The same, at most, for the name of a number."""
LISTED = 30
"""Changes of one part that a screen shows; -v shows all, and so does JSON."""
NODES_SHOWN, NAME_SHOWN = 60, 80
SHORT, SAME = 24, 8
"""Characters of a value that any screen shows, and how much of what two values have in common."""


def document(before: Report, after: Report, found: Difference) -> dict[str, Any]:
    """The difference as JSON data."""
    return {
        "document": "diff",
        "version": VERSION,
        "tool": {"name": "preflight", "version": __version__},
        "before": _report(before),
        "after": _report(after),
        "nodes": {"both": found.nodes, "came": found.came, "gone": found.gone},
        "changes": [encode(change) for change in found.changes],
        "numbers": [encode(number) for number in found.numbers],
        "noise": NOISE,
    }


def _report(report: Report) -> dict[str, Any]:
    seen = report.observations
    return {
        "started": seen.started,
        "verdict": str(report.verdict),
        "tool": dict(seen.tool),
        "size": seen.topology.size,
    }


def render(
    names: tuple[str, str], reports: tuple[Report, Report], found: Difference, look: Look = PIPED
) -> str:
    """The difference as text that ends with a newline. `names`: the files of the two reports."""
    return printed(lines(names, reports, found, look), look)


def lines(
    names: tuple[str, str], reports: tuple[Report, Report], found: Difference, look: Look
) -> Iterator[Line]:
    """The whole screen."""
    for label, name, report in zip(("before", "after"), names, reports, strict=True):
        word, style = WORDS[report.verdict]
        told = [report.observations.started or "no date", *title(report)]
        first: Line = [(f" {label:<8}", "dim"), (f"{look.say(name)}   ", "bold"), (word, style)]
        first += [("   ", "")]
        yield from flow([look.say(part) for part in told], look, first, 9)
    if found.came or found.gone:
        yield []
        yield [(" nodes", "bold")]
        for word, some in (("new", found.came), ("gone", found.gone)):
            if some:
                yield from flow([look.say(_where(some))], look, _summary_line(word, look), 5)
    for part in PARTS:
        changes = [change for change in found.changes if change.part == part]
        if changes:
            yield []
            yield [(f" {part}", "bold")]
            yield from _listed([list(_change(change, look)) for change in changes], look)
    numbers = found.numbers if look.verbose else found.changed
    if numbers:
        yield []
        yield [(" numbers", "bold")]
        widest = min(max(len(_number_name(number)) for number in numbers), NUMBER)
        yield from _listed([list(_number(number, look, widest)) for number in numbers], look)
    yield []
    yield from _sum(found, look)
    yield from flow([NOISE], look, [(" ", "")], 1)


def _listed(told: Sequence[Sequence[Line]], look: Look) -> Iterator[Line]:
    most = len(told) if look.verbose else LISTED
    for one in told[:most]:
        yield from one
    if len(told) > most:
        yield [("   ", ""), (f"and {len(told) - most} more: -v", "dim")]


def _summary_line(name: str, look: Look, style: str = "", width: int = NAME) -> Line:
    """A name, in a column of its own; on a narrow screen as wide as it is."""
    name = look.say(name, NAME_SHOWN)
    return [(f"   {name}  " if look.narrow else f"   {name:<{width}}  ", style)]


def _change(change: Change, look: Look) -> Iterator[Line]:
    indent = 5 if look.narrow else NAME + 5
    room = LONGEST if look.verbose else max(SHORT, (look.width - indent) // 2 - 2)
    was, now = cut_where_they_differ(change.before, change.after, room)
    status = change.part == CHECKS and change.after in set(Status)
    first = _summary_line(change.name, look, STYLES[Status(change.after)] if status else "")
    parts = [f"{look.say(was)} → {look.say(now)}"]
    parts += [look.say(_where(change.nodes))] if change.nodes else []
    yield from flow(parts, look, first, indent)


def cut_where_they_differ(was: str, now: str, room: int) -> tuple[str, str]:
    """Two values in so many characters each, cut so that it is seen where they differ."""
    shorter = min(len(was), len(now))
    same = next((i for i in range(shorter) if was[i] != now[i]), shorter)
    skipped = same - SAME if max(len(was), len(now)) > room else 0
    return _cut(was, skipped, room), _cut(now, skipped, room)


def _cut(value: str, skipped: int, room: int) -> str:
    value = "…" + value[skipped:] if skipped > 0 else value
    return value if len(value) <= room else value[: room - 1] + "…"


def _where(nodes: Sequence[str]) -> str:
    told = folded(nodes)
    return told if len(told) <= NODES_SHOWN else plural(len(nodes), "node")


def _number_name(number: Number) -> str:
    return f"{number.check} {number.name}"


def _number(number: Number, look: Look, width: int) -> Iterator[Line]:
    word = "slower" if number.worse else "faster"
    style = ("yellow" if number.worse else "green") if number.changed else "dim"
    parts = [f"{_value(number, number.before)} → {_value(number, number.after)}"]
    parts += [f"{number.ratio:.2f} x" + f", {word}" * number.changed]
    parts += [f"of {number.of}"] if number.of > 1 else []
    first = _summary_line(_number_name(number), look, style, width)
    yield from flow(parts, look, first, 5 if look.narrow else width + 5)


def _value(number: Number, value: float) -> str:
    if number.seconds is not None:
        return duration(value * number.seconds)
    return f"{size(int(value))}/s" if "bytes_per_s" in number.name else f"{value:.3g}"


def _sum(found: Difference, look: Look) -> Iterator[Line]:
    told = [
        "no change" if found.nothing else plural(len(found.changes), "change"),
        f"{len(found.changed)} of {plural(len(found.numbers), 'number')}",
        f"{plural(len(found.nodes), 'node')} compared"
        if found.nodes
        else "no node is in both: only what is of the whole job was compared",
    ]
    yield from flow(told, look, [(" ", "")], 3)
