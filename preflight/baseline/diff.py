"""What changed between two reports of the same cluster. Pure.

A fact changed or it did not. A number is never the same twice, and of each there are only two: what
counts as a change is a rule (NOISE), and all numbers are there to be looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from preflight.baseline import facts
from preflight.frozen import dataclass
from preflight.model import WEIGHT, Report, Row, Status, place_of
from preflight.serde import encode

CHECKS, SETTINGS, WORLD = "checks", "settings", "job"
PARTS = (
    *(CHECKS, facts.SOFTWARE, facts.GPUS, facts.VARIABLES, facts.LIMITS, facts.ADDRESSES),
    *(WORLD, SETTINGS),
)
"""The parts of a difference, in the order in which they are told."""

ABSENT = "none"
NOT_MADE = "not made"

# nine runs on one idle machine: single probes of a millisecond differed up to thirtyfold, of more
# than 20 ms fourfold, rates threefold
SINGLE, SINGLE_SECONDS = 3.0, 0.02
MANY, SHIFTED, SHIFTED_SECONDS = 4, 1.5, 0.0001
APART = 2.0
NOISE = (
    f"a number has changed when it is {SINGLE:g} times what it was (a time: and by "
    f"{SINGLE_SECONDS * 1000:g} ms), the median of {MANY} or more nodes or links at "
    f"{SHIFTED:g} times, one of these at {APART:g} times what the others have changed"
)
"""The rule, in one sentence."""

RATES = ("_gbs", "_per_second", "_per_s", "tflops")
TIMES = {"_s": 1.0, "seconds": 1.0, "_ms": 0.001}
BESIDE = ("offset_s", "last_s")
"""Times that say nothing of a speed: where a clock stands, when the last agent was started."""
LEAVES, LEVELS = 20_000, 4
"""Numbers of one check that are read, and how deep."""
SMALLEST, LARGEST = 1e-12, 1e100
"""Beyond these it is no measurement, and a ratio of two may be no number. An int may be longer
than any float."""


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that is another one now, on these nodes; none of them: of the whole job."""

    part: str
    name: str
    before: str
    after: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Number:
    """One measured number, or the median of `of` nodes or links. ratio: after by before. worse:
    it is slower now. changed: by the rule in NOISE. seconds: of a time, its unit in seconds; None
    for a rate."""

    check: str
    name: str
    before: float
    after: float
    ratio: float
    worse: bool
    changed: bool
    seconds: float | None = None
    of: int = 1


@dataclass(frozen=True, slots=True)
class Difference:
    """All of it. `nodes` are those that are in both reports."""

    nodes: tuple[str, ...]
    came: tuple[str, ...]
    gone: tuple[str, ...]
    changes: tuple[Change, ...]
    numbers: tuple[Number, ...]

    @property
    def changed(self) -> tuple[Number, ...]:
        return tuple(number for number in self.numbers if number.changed)

    @property
    def nothing(self) -> bool:
        return not (self.came or self.gone or self.changes or self.changed)


def difference(before: Report, after: Report) -> Difference:
    """From the first report to the second. Nodes are the same where their names are; two reports
    of a single node are of the same one, however it is called by now."""
    old, new = _nodes(before), _nodes(after)
    shared = {name: name for name in old if name in set(new)}
    if len(old) == len(new) == 1:
        shared = {old[0]: new[0]}
    known = {*shared, *shared.values()}
    changes = [
        *_statuses(before, after, shared),
        *_facts(before, after, shared),
        *_job(before, after),
        *_settings(before, after),
    ]
    return Difference(
        nodes=tuple(shared.values()),
        came=tuple(name for name in new if name not in known),
        gone=tuple(name for name in old if name not in known),
        changes=tuple(sorted(changes, key=lambda c: PARTS.index(c.part))),
        numbers=tuple(_numbers(before, after)),
    )


def _nodes(report: Report) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node.name for node in report.observations.topology.nodes))


# --- facts ---


def _grouped(part: str, name: str, pairs: Iterable[tuple[str, str, str]]) -> Iterator[Change]:
    """(node, before, after) as changes, each with all its nodes."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for node, before, after in pairs:
        if before != after:
            nodes.setdefault((before, after), []).append(node)
    for (before, after), some in nodes.items():
        yield Change(part, name, before, after, tuple(some))


def _statuses(before: Report, after: Report, shared: Mapping[str, str]) -> Iterator[Change]:
    if before.verdict is not after.verdict:
        was, now = (str(r.verdict).replace("_", " ").upper() for r in (before, after))
        yield Change(CHECKS, "verdict", was, now)
    old, new = ({row.id: row for row in report.rows} for report in (before, after))
    for check in dict.fromkeys([*old, *new]):
        if check not in old or check not in new:
            row = old.get(check) or new[check]
            if row.status is not Status.SKIP:
                words = str(row.status), NOT_MADE
                yield Change(CHECKS, check, *(words if check in old else words[::-1]))
            continue
        here, there = _by_node(old[check]), _by_node(new[check])
        both = [(a, b) for a, b in shared.items() if a in here and b in there]
        found = list(_grouped(CHECKS, check, ((b, here[a], there[b]) for a, b in both)))
        yield from found
        if not found and old[check].status is not new[check].status:
            yield Change(CHECKS, check, str(old[check].status), str(new[check].status))


def _by_node(row: Row) -> dict[str, str]:
    """The heaviest status that a check has on each node."""
    found: dict[str, Status] = {}
    for key, status in row.by_subject.items():
        node = place_of(key)[0] if row.scope in ("rank", "world") else key
        found[node] = max(found.get(node, Status.PASS), status, key=WEIGHT.__getitem__)
    return {node: str(status) for node, status in found.items()}


def _facts(before: Report, after: Report, shared: Mapping[str, str]) -> Iterator[Change]:
    """Where a check has looked at a node both times."""
    for check in facts.READERS:
        old, new = facts.seen(before, check), facts.seen(after, check)
        pairs: dict[facts.Name, list[tuple[str, str, str]]] = {}
        for here, there in shared.items():
            if here not in old or there not in new:
                continue
            was, now = facts.facts(check, old[here]), facts.facts(check, new[there])
            for fact in dict.fromkeys([*was, *now]):
                told = (there, was.get(fact, ABSENT), now.get(fact, ABSENT))
                pairs.setdefault(fact, []).append(told)
        for (part, name), told_of in pairs.items():
            yield from _grouped(part, name, told_of)


def _job(before: Report, after: Report) -> Iterator[Change]:
    old, new = before.observations, after.observations
    for name, was, now in (
        ("preflight", old.tool.get("version", ""), new.tool.get("version", "")),
        ("launcher", old.topology.launcher, new.topology.launcher),
        ("ranks", str(old.topology.size), str(new.topology.size)),
        ("ranks seen", str(old.topology.met), str(new.topology.met)),
    ):
        if was != now:
            yield Change(WORLD, name, was or ABSENT, now or ABSENT)


def _settings(before: Report, after: Report) -> Iterator[Change]:
    old, new = before.observations.settings, after.observations.settings
    for name in dict.fromkeys([*old, *new]):
        was, now = (
            _setting_text(some[name].value) if name in some else ABSENT for some in (old, new)
        )
        if was != now:
            yield Change(SETTINGS, name, was, now)


def _setting_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(encode(value), ensure_ascii=False)


# --- numbers ---


def _numbers(before: Report, after: Report) -> Iterator[Number]:
    old, new = ({row.id: row for row in report.rows} for report in (before, after))
    places = {*_nodes(before), *_nodes(after)}
    for check in (check for check in old if check in new):
        was, now = (leaves(row.measured.values) for row in (old[check], new[check]))
        families: dict[tuple[str, ...], dict[str, Number]] = {}
        for path, number in was.items():
            if not _measures(path) or path not in now or min(number, now[path]) < SMALLEST:
                continue
            one = _number_change(check, path, number, now[path])
            if of_places(path[-1], places):
                families.setdefault(path[:-1], {})[path[-1]] = one
            else:
                yield one
        for path, family in families.items():
            yield from _family(check, path, family)


def leaves(values: object, most: int = LEAVES) -> dict[tuple[str, ...], float]:
    """Every number that was measured, by its place: `most` of them."""
    found: dict[tuple[str, ...], float] = {}

    def walk(path: tuple[str, ...], value: Any) -> None:
        if len(found) >= most:
            return
        if isinstance(value, Mapping) and len(path) < LEVELS:
            for name, inner in value.items():
                walk((*path, str(name)), inner)
        elif path and type(value) in (int, float) and abs(value) < LARGEST:
            found[path] = float(value)

    walk((), values)
    return found


def _measures(path: tuple[str, ...]) -> bool:
    """Whether it is a rate or a time, by the unit that a name on its way ends with."""
    return not set(path) & set(BESIDE) and any(n.endswith((*RATES, *TIMES)) for n in path)


def _unit(path: tuple[str, ...]) -> float | None:
    """Of a time, in seconds; None for a rate, of which more is better."""
    name = next(n for n in path if n.endswith((*RATES, *TIMES)))
    if name.endswith(RATES):
        return None
    return next(seconds for end, seconds in TIMES.items() if name.endswith(end))


def of_places(name: str, places: set[str]) -> bool:
    """Whether it is called after a node, or a link between two: `a->b`, `a-b`."""
    if name in places:
        return True
    cuts = (at for at, letter in enumerate(name[:520]) if letter == "-")
    return any(name[:at] in places and name[at + 1 :].removeprefix(">") in places for at in cuts)


def _number_change(
    check: str, path: tuple[str, ...], was: float, now: float, of: int = 1
) -> Number:
    """`of` as many nodes or links as it is the median of."""
    least, least_seconds = (SHIFTED, SHIFTED_SECONDS) if of >= MANY else (SINGLE, SINGLE_SECONDS)
    ratio, unit = now / was, _unit(path)
    far = max(ratio, was / now) >= least
    if unit is None:
        return Number(check, ".".join(path), was, now, ratio, ratio < 1, far, None, of)
    far = far and abs(now - was) * unit >= least_seconds
    return Number(check, ".".join(path), was, now, ratio, ratio > 1, far, unit, of)


def _family(check: str, path: tuple[str, ...], family: Mapping[str, Number]) -> Iterator[Number]:
    """Numbers of nodes or links: their median, which is steadier than each, and then those that
    did not go along with it."""
    if len(family) < MANY:
        yield from family.values()
        return
    was, now = median(n.before for n in family.values()), median(n.after for n in family.values())
    yield _number_change(check, (*path, "median"), was, now, len(family))
    shift = median(n.ratio for n in family.values())
    for n in family.values():
        apart = max(n.ratio / shift, shift / n.ratio) >= APART
        seen = n.seconds is None or abs(n.after - n.before) * n.seconds >= SHIFTED_SECONDS
        yield replace(n, changed=apart and seen)
