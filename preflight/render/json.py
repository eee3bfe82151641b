"""The JSON report (report-v1): a document that can be replayed, judged again, diffed, attached.

`document()` writes the shape of the schema, `parse()` reads it back: hostile input, bounded.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from preflight.model import (
    DRAWN_NODES,
    AsNeeded,
    ByKey,
    Cause,
    Command,
    Curves,
    Device,
    Fact,
    Finding,
    FindingType,
    Grid,
    Lanes,
    LeftBehind,
    Mark,
    Measured,
    Missing,
    Node,
    Observation,
    Observations,
    PreflightError,
    Report,
    Row,
    Seen,
    Setting,
    Status,
    Topology,
    Verdict,
)
from preflight.packed import Packed, digest, plain, restored, stored
from preflight.render import alike, pieces
from preflight.sanitize import JsonText, json_lines, json_text
from preflight.serde import as_it_is, decode, encode, weight_of

SCHEMA = "urn:cluster-preflight:schema:report-v1"
LIMIT = 64 << 20
LIMIT_A_RANK = 4 << 10
LIMIT_MOST = 512 << 20
"""Bytes of a report that is read back, unpacked: of any, more for each rank of the job that it says
to be of, and of the largest. A rank takes some 300 bytes where all are alike."""
WEIGHT, WEIGHT_OF_BYTE = 256 << 20, 12
"""Bytes that it takes to hold what it says: of any, and for each of its own; ten are usual."""
TOO_MUCH = "says too much, or twice of one"
SAID = 300
"""Characters of why something is no report: it may be the words of whoever wrote it."""


def render(report: Report) -> str:
    return "".join(parts(report))


def parts(report: Report) -> Iterator[str]:
    """The text of the report in parts, each of them made on request: no part has more
    than what one check has to tell of all nodes."""
    seen = report.observations
    places = alike.Places(seen.topology.nodes)
    alone: dict[str, Any] = {}
    groups: dict[str, list[JsonText]] = {}
    for check, own, found in _folded(seen, places, alike.FROM):
        alone[check] = own
        if laid_out := [JsonText(group) for group in found]:  # which takes a tenth
            groups[check] = laid_out
    sections = _sections(report, places, alone)
    if groups:
        yield from json_lines(itertools.chain(sections, [("alike", groups)]))
    else:
        yield json_text(dict(sections))


def document(report: Report, *, grouped: bool = True) -> dict[str, Any]:
    """The report as JSON data. `grouped`: what is alike is written once (alike.py)."""
    seen = report.observations
    places = alike.Places(seen.topology.nodes)
    alone: dict[str, Any] = {}
    groups: dict[str, list[alike.Group]] = {}
    for check, own, found in _folded(seen, places, alike.FROM if grouped else math.inf):
        alone[check] = own
        if listed := list(found):
            groups[check] = listed
    return dict(_sections(report, places, alone)) | ({"alike": groups} if groups else {})


def _sections(
    report: Report, places: alike.Places, alone: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """What a report has on its first level, but for what is alike."""
    seen = report.observations
    top = seen.topology
    yield "$schema", SCHEMA
    yield "tool", dict(seen.tool)
    yield "verdict", str(report.verdict)
    yield "exit_code", report.exit_code
    yield "started", seen.started
    yield "seconds", round(seen.seconds, 3)
    settings = seen.settings.items()
    yield "settings", {name: {"value": encode(s.value), "from": s.source} for name, s in settings}
    facts = top.facts.items()
    yield (
        "world",
        {
            "source": top.launcher,
            "job": top.job,
            "size": top.size,
            "met": top.met,
            "master": {"addr": top.master_addr, "port": top.master_port},
            "nodes": [encode(node) for node in top.nodes],
            "facts": {name: {"value": f.value, "from": f.source} for name, f in facts},
        },
    )
    yield "checks", [_row(row, places) for row in report.rows]
    yield "findings", [_finding(finding) for finding in report.findings]
    yield "skipped", list(report.skipped)
    yield "tolerated", list(report.tolerated)
    yield "exclude", list(report.exclude)
    yield "interrupted", seen.interrupted
    yield "left_behind", [encode(left) for left in seen.left_behind]
    yield "observations", alone


def _folded(
    seen: Observations, places: alike.Places, least: float
) -> Iterator[tuple[str, dict[str, Any], Iterator[alike.Group]]]:
    """Of each check the observations that stand for themselves, and the groups of those that are
    alike."""
    columns = alike.Columns()
    for check, by_key in seen.checks.items():
        few = len(by_key) < least
        data_of = partial(_observation, values={}, packed=not few)
        if few:
            yield check, {key: data_of(one) for key, one in by_key.items()}, iter(())
        else:
            yield check, *alike.folded(by_key, places, columns, check, data_of)


def _row(row: Row, places: alike.Places) -> dict[str, Any]:
    measured = row.measured
    drawn: dict[str, Any] = {"grid": measured.grid, "lanes": measured.lanes}
    drawn |= {"curves": measured.curves, "parts": measured.parts, "notes": measured.notes}
    if places.nodes > DRAWN_NODES:
        drawn = {}
    return {
        "id": row.id,
        "stage": row.stage,
        "scope": row.scope,
        "status": str(row.status),
        "seconds": round(row.seconds, 4),
        "covered": row.covered,
        "of": len(row.by_subject),
        **_statuses(row, places),
        "measured": alike.numbers_folded(encode(row.measured.values), places),
        "text": row.measured.text,
        "reason": row.reason,
        "required": row.required,
        **{name: encode(of) for name, of in drawn.items() if of},
    }


def _statuses(row: Row, places: alike.Places) -> dict[str, Any]:
    """`by_subject`; of many subjects `by_status` has those who can be told by their numbers."""
    if len(row.by_subject) < alike.FROM:
        return {"by_subject": {key: str(status) for key, status in row.by_subject.items()}}
    alone: dict[str, str] = {}
    numbers: dict[tuple[Status, str], list[int]] = {}
    for key, status in row.by_subject.items():
        place = places.number(key)
        if place is None:
            alone[key] = str(status)
        else:
            numbers.setdefault((status, place[0]), []).append(place[1])
    told = [{"status": str(s)} | places.written(kind, of) for (s, kind), of in numbers.items()]
    return {"by_subject": alone, "by_status": told}


def _finding(finding: Finding) -> dict[str, Any]:
    advice = finding.advice or FindingType(who="", cause="", means="")
    return {
        "check": finding.check,
        "code": finding.code,
        "headline": finding.headline,
        "status": str(finding.status),
        "confidence": str(finding.confidence),
        "subjects": [encode(subject) for subject in finding.subjects],
        "blame": str(finding.blame),
        "saw": finding.saw,
        "expected": finding.expected,
        "explains": list(finding.folded),
        "alternatives": list(finding.alternatives),
        **remedy(advice),
        "evidence": list(finding.evidence)
        or [
            f"observations/{finding.check}/{subject.node}"
            for subject in finding.subjects
            if subject.node
        ],
    }


def remedy(advice: FindingType) -> dict[str, Any]:
    """What follows from a finding and what to do about it, as reports and `explain` call it."""
    return {
        "means": advice.means,
        "remedy": {
            "who": advice.who,
            "now": _commented(advice.now),
            "text": advice.text,
            "cause": advice.cause,
            "commands": [encode(command) for command in advice.commands],
        },
    }


REMARK = "   # "


def _commented(now: str) -> str:
    """A command with what is said of it as a comment: whoever pastes all of it runs only that."""
    command, blanks, remark = now.partition("   ")
    return f"{command}{REMARK}{remark.strip()}" if blanks else now


def _observation(
    observation: Observation, values: dict[int, Any], *, packed: bool
) -> dict[str, Any]:
    """`values`: what has become of a value that several may have, by its id(). `packed`: one that
    is packed stays so."""
    marks = [[mark.name, mark.at] for mark in observation.marks]
    seconds = round(observation.seconds, 4)
    if isinstance(observation, Seen):
        value = observation.value
        if not (packed and type(value) is Packed):
            if id(value) not in values:
                values[id(value)] = as_it_is(plain(value))
            value = values[id(value)]
        return {"ok": value, "seconds": seconds, "marks": marks}
    found = {
        "missing": str(observation.cause),
        "detail": observation.detail,
        "seconds": seconds,
        "marks": marks,
    }
    return found | ({"by": observation.by} if observation.by else {})


WAYS = {
    "checks": {pieces.ANY: stored},
    "observations": {pieces.ANY: stored},
    "alike": {pieces.ANY: {pieces.ANY: {"but": {pieces.ANY: stored}}}},
}
"""The pieces of a report, of which there is a part for each check."""


def parse(text: str) -> Report:
    """A saved report; PreflightError in one line when it is none."""
    return parse_parts(deque([text]))


def parse_parts(parts: deque[str]) -> Report:
    """The same of a text in parts, each of which goes as it is read."""
    try:
        _bound_weight(parts)
        data = pieces.read(_taken(parts), WAYS)
    except ValueError as error:
        why = "not valid JSON" if isinstance(error, json.JSONDecodeError) else error
        raise PreflightError(f"not a report: {why}") from None
    if not isinstance(data, dict) or "observations" not in data or "verdict" not in data:
        raise PreflightError("not a report: it lacks 'observations' and 'verdict'")
    try:
        return _report(data)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise PreflightError(f"not a report that this version reads: {error}"[:SAID]) from None


def _bound_weight(parts: Iterable[str]) -> None:
    """ValueError for a text that says more than it takes to write it."""
    if sum(map(len, parts)) <= WEIGHT // 64:
        return
    size = sum(len(part) for part in _written(parts))
    if weight_of(_written(parts)) > max(WEIGHT, WEIGHT_OF_BYTE * size):
        raise ValueError("it says more than one of its size does")


def _written(parts: Iterable[str]) -> Iterator[bytes]:
    return (part.encode("utf-8", "backslashreplace") for part in parts)


def _taken(parts: deque[str]) -> Iterator[str]:
    while parts:
        yield parts.popleft()


def _report(data: Mapping[str, Any]) -> Report:
    top = _parse_topology(data["world"])
    places = alike.Places(top.nodes)
    observations = _parse_observations(data, top, places)
    return Report(
        verdict=Verdict(data["verdict"]),
        exit_code=decode(int, data["exit_code"], "exit_code"),
        rows=tuple(_parse_rows(data["checks"], places)),
        findings=tuple(_parse_finding(finding) for finding in data["findings"]),
        observations=observations,
        skipped=decode(tuple[str, ...], data.get("skipped", [])),
        tolerated=decode(tuple[str, ...], data.get("tolerated", [])),
        exclude=decode(tuple[str, ...], data.get("exclude", [])),
    )


def _parse_topology(world: Mapping[str, Any]) -> Topology:
    master = world.get("master", {})
    return Topology(
        launcher=decode(str, world.get("source", "local")),
        job=decode(str, world.get("job", "")),
        size=decode(int, world["size"]),
        nodes=decode(tuple[Node, ...], world["nodes"], "world.nodes"),
        master_addr=decode(str, master.get("addr", "")),
        master_port=decode(int, master.get("port", 0)),
        facts={
            name: Fact(decode(str, f["value"]), decode(str, f["from"]))
            for name, f in world.get("facts", {}).items()
        },
    )


def _parse_observations(
    data: Mapping[str, Any], top: Topology, places: alike.Places
) -> Observations:
    return Observations(
        tool=decode(Mapping[str, str], data.get("tool", {}), "tool"),
        started=decode(str, data.get("started", ""), "started"),
        seconds=decode(float, data.get("seconds", 0.0), "seconds"),
        settings={
            name: Setting(s["value"], decode(str, s["from"], f"settings.{name}"))
            for name, s in data.get("settings", {}).items()
        },
        topology=top,
        checks=_parse_checks(data["observations"], data.get("alike", {}), places),
        interrupted=decode(str, data.get("interrupted", "")),
        left_behind=decode(tuple[LeftBehind, ...], data.get("left_behind", [])),
    )


def _parse_checks(
    alone: Mapping[str, Any], groups: Mapping[str, Any], places: alike.Places
) -> Mapping[str, Mapping[str, Observation]]:
    """All observations. Where there are groups each check is read now, so that what makes no sense
    is refused, and read again whenever somebody looks at it: most of what prints a report does
    not."""
    if not groups:
        return {check: _parse_alone(by_key) for check, by_key in alone.items()}
    checks = [*alone, *(check for check in groups if check not in alone)]
    make = partial(_parse_check, alone, groups, places)
    left = alike.KEYS_MOST
    for check in checks:
        left -= len(make(check)) - len(restored(alone.get(check, {})))
        if left < 0:
            raise ValueError(f"alike: {check!r:.60} {TOO_MUCH}")
    return AsNeeded(checks, make)


def _parse_alone(by_key: Any) -> dict[str, Observation]:
    return {key: _parse_observation(o, {}) for key, o in restored(by_key).items()}


def _parse_check(
    alone: Mapping[str, Any], groups: Mapping[str, Any], places: alike.Places, check: str
) -> ByKey:
    """The observations of a check, with those of which a group stands for many."""
    found = _parse_alone(alone.get(check, {}))
    if check not in groups:
        return ByKey(found)
    for group in groups[check]:
        keys = places.read(group)
        if not found.keys().isdisjoint(keys):
            raise ValueError(f"alike: {check!r:.60} {TOO_MUCH}")
        common = _marks_in_common(group)
        last: tuple[Any, Observation] | None = None
        for key, said in alike.unfolded(group, keys, groups):
            if last is None or last[0] is not said:
                last = said, _parse_observation(said, common)
            found[key] = last[1]
    return ByKey(places.in_order(found))


_Common = dict[int, Any]
"""What becomes of marks that many have in common, by the id() of their data."""


def _marks_in_common(group: Mapping[str, Any]) -> _Common:
    as_first = group.get("as")
    marks = as_first.get("marks") if isinstance(as_first, dict) else None
    return dict.fromkeys(map(id, [marks, *marks])) if isinstance(marks, list) else {}


def _parse_rows(data: Any, places: alike.Places) -> Iterator[Row]:
    known: dict[bytes, Mapping[str, Status]] = {}
    for one in data:
        yield _parse_row(restored(one), places, known)


def _parse_row(
    data: Mapping[str, Any], places: alike.Places, known: dict[bytes, Mapping[str, Status]]
) -> Row:
    """`known`: what other rows say of their subjects. Most say the same: that is one object."""
    values = {k: data[k] for k in ("id", "stage", "scope", "status", "seconds", "by_subject")}
    told = digest([values["by_subject"], data.get("by_status")])
    if told not in known:
        known[told] = _parse_statuses(values["by_subject"], data.get("by_status"), places)
    values |= {"by_subject": {}, "reason": data.get("reason", "")}
    row: Row = replace(decode(Row, values, "checks"), by_subject=known[told])
    text = decode(str, data.get("text", ""))
    numbers = dict(alike.numbers_unfolded(data.get("measured", {}), places))
    lanes, curves = (data.get(name) for name in ("lanes", "curves"))
    measured = Measured(
        text,
        numbers,
        _parse_grid(data.get("grid")),
        None if lanes is None else decode(Lanes, lanes, "lanes"),
        None if curves is None else decode(Curves, curves, "curves"),
        decode(tuple[Device, ...], data.get("parts", []), "parts"),
        decode(tuple[str, ...], data.get("notes", []), "notes"),
    )
    return replace(row, measured=measured, required=bool(data.get("required", True)))


def _parse_statuses(by_subject: Any, by_status: Any, places: alike.Places) -> Mapping[str, Status]:
    found: dict[str, Status] = decode(Mapping[str, Status], by_subject, "checks.by_subject")
    if by_status is None:
        return found
    for said in by_status:
        for key in (keys := places.read(said))[:1]:
            status = decode(Status, said["status"], f"checks.by_subject.{key}")
            found |= dict.fromkeys(keys, status)
    return places.in_order(found)


def _parse_grid(data: Any) -> Grid | None:
    """The grid of a row; ValueError where a cell lies outside of it."""
    if data is None:
        return None
    grid: Grid = decode(Grid, data, "grid")
    rows, columns = range(len(grid.rows)), range(len(grid.columns))
    if not all(c.row in rows and c.column in columns for c in grid.cells):
        raise ValueError("grid: a cell outside of its rows and columns")
    numbers = (grid.usual, grid.rest or 0.0, *(c.value for c in grid.cells))
    if not all(0 <= n < math.inf for n in numbers):
        raise ValueError("grid: not a finite number, or below 0")
    return grid


def _parse_finding(data: Mapping[str, Any]) -> Finding:
    remedy = data.get("remedy", {})
    advice = FindingType(
        who=decode(str, remedy.get("who", "")),
        cause=decode(str, remedy.get("cause", "")),
        means=decode(str, data.get("means", "")),
        now=decode(str, remedy.get("now", "")).replace(REMARK, "   ", 1),
        text=decode(str, remedy.get("text", "")),
        commands=decode(tuple[Command, ...], remedy.get("commands", [])),
    )
    names = ("code", "status", "subjects", "saw", "expected", "blame", "confidence")
    values = {name: data[name] for name in names}
    finding: Finding = decode(Finding, values, "findings")
    if not finding.subjects:
        raise ValueError("findings: one has no subject")
    return finding.with_(
        check=decode(str, data["check"]),
        headline=decode(str, data.get("headline", data["saw"])),
        advice=advice,
        folded=decode(tuple[str, ...], data.get("explains", [])),
        alternatives=decode(tuple[str, ...], data.get("alternatives", [])),
        evidence=decode(tuple[str, ...], data.get("evidence", [])),
    )


def _parse_observation(data: Mapping[str, Any], common: _Common) -> Observation:
    marks = _parse_marks(data.get("marks", []), common)
    seconds = decode(float, data.get("seconds", 0.0))
    if "missing" in data:
        return Missing(
            Cause(data["missing"]),
            decode(str, data.get("detail", "")),
            seconds,
            marks,
            decode(str, data.get("by", "")),
        )
    return Seen(data["ok"], seconds, marks)


def _parse_marks(data: Any, common: _Common) -> tuple[Mark, ...]:
    made = common.get(id(data))
    if made is None:
        made = tuple(_parse_mark(one, common) for one in data)
        if id(data) in common:
            common[id(data)] = made
    return made


def _parse_mark(data: Any, common: _Common) -> Mark:
    made = common.get(id(data))
    if made is None:
        name, at = data
        made = Mark(decode(str, name), decode(float, at))
        if id(data) in common:
            common[id(data)] = made
    return made
