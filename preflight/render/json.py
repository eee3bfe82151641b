"""The JSON report (report-v1): a document that can be replayed, judged again, diffed, attached.

`document()` writes the shape of the schema, `parse()` reads it back: hostile input, bounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from preflight.model import (
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
    Topology,
    Verdict,
)
from preflight.sanitize import json_text
from preflight.serde import decode, encode, parsed

SCHEMA = "urn:cluster-preflight:schema:report-v1"
LIMIT = 64 << 20
"""Bytes of a report that is read back: it travels through a worker's answer (process/pool.py)."""
SAID = 300
"""Characters of why something is no report: it may be the words of whoever wrote it."""


def render(report: Report) -> str:
    return json_text(document(report))


def document(report: Report) -> dict[str, Any]:
    """The report as JSON data."""
    seen = report.observations
    top = seen.topology
    return {
        "$schema": SCHEMA,
        "tool": dict(seen.tool),
        "verdict": str(report.verdict),
        "exit_code": report.exit_code,
        "started": seen.started,
        "seconds": round(seen.seconds, 3),
        "settings": {
            name: {"value": encode(s.value), "from": s.source} for name, s in seen.settings.items()
        },
        "world": {
            "source": top.launcher,
            "job": top.job,
            "size": top.size,
            "met": top.met,
            "master": {"addr": top.master_addr, "port": top.master_port},
            "nodes": [encode(node) for node in top.nodes],
            "facts": {name: {"value": f.value, "from": f.source} for name, f in top.facts.items()},
        },
        "checks": [_row(row) for row in report.rows],
        "findings": [_finding(finding) for finding in report.findings],
        "skipped": list(report.skipped),
        "tolerated": list(report.tolerated),
        "exclude": list(report.exclude),
        "interrupted": seen.interrupted,
        "left_behind": [encode(left) for left in seen.left_behind],
        "observations": {
            check: {key: _observation(o) for key, o in by_key.items()}
            for check, by_key in seen.checks.items()
        },
    }


def _row(row: Row) -> dict[str, Any]:
    measured = row.measured
    drawn: dict[str, Any] = {"grid": measured.grid, "lanes": measured.lanes}
    drawn |= {"curves": measured.curves, "parts": measured.parts}
    return {
        "id": row.id,
        "stage": row.stage,
        "scope": row.scope,
        "status": str(row.status),
        "seconds": round(row.seconds, 4),
        "covered": row.covered,
        "of": len(row.by_subject),
        "by_subject": {key: str(status) for key, status in row.by_subject.items()},
        "measured": encode(row.measured.values),
        "text": row.measured.text,
        "reason": row.reason,
        "required": row.required,
        **{name: encode(of) for name, of in drawn.items() if of},
    }


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
            "now": advice.now,
            "text": advice.text,
            "cause": advice.cause,
            "commands": [encode(command) for command in advice.commands],
        },
    }


def _observation(observation: Observation) -> dict[str, Any]:
    marks = [[mark.name, mark.at] for mark in observation.marks]
    seconds = round(observation.seconds, 4)
    if isinstance(observation, Seen):
        return {"ok": encode(observation.value), "seconds": seconds, "marks": marks}
    found = {
        "missing": str(observation.cause),
        "detail": observation.detail,
        "seconds": seconds,
        "marks": marks,
    }
    return found | ({"by": observation.by} if observation.by else {})


def parse(text: str) -> Report:
    """A saved report; PreflightError in one line when it is none."""
    try:
        data = parsed(text)
    except ValueError as error:
        why = "not valid JSON" if isinstance(error, json.JSONDecodeError) else error
        raise PreflightError(f"not a report: {why}") from None
    if not isinstance(data, dict) or "observations" not in data or "verdict" not in data:
        raise PreflightError("not a report: it lacks 'observations' and 'verdict'")
    try:
        return _report(data)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise PreflightError(f"not a report that this version reads: {error}"[:SAID]) from None


def _report(data: Mapping[str, Any]) -> Report:
    return Report(
        verdict=Verdict(data["verdict"]),
        exit_code=decode(int, data["exit_code"], "exit_code"),
        rows=tuple(_parse_row(row) for row in data["checks"]),
        findings=tuple(_parse_finding(finding) for finding in data["findings"]),
        observations=_parse_observations(data),
        skipped=decode(tuple[str, ...], data.get("skipped", [])),
        tolerated=decode(tuple[str, ...], data.get("tolerated", [])),
        exclude=decode(tuple[str, ...], data.get("exclude", [])),
    )


def _parse_observations(data: Mapping[str, Any]) -> Observations:
    world = data["world"]
    master = world.get("master", {})
    topology = Topology(
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
    return Observations(
        tool=decode(Mapping[str, str], data.get("tool", {}), "tool"),
        started=decode(str, data.get("started", ""), "started"),
        seconds=decode(float, data.get("seconds", 0.0), "seconds"),
        settings={
            name: Setting(s["value"], decode(str, s["from"], f"settings.{name}"))
            for name, s in data.get("settings", {}).items()
        },
        topology=topology,
        checks={
            check: {key: _parse_observation(o) for key, o in by_key.items()}
            for check, by_key in data["observations"].items()
        },
        interrupted=decode(str, data.get("interrupted", "")),
        left_behind=decode(tuple[LeftBehind, ...], data.get("left_behind", [])),
    )


def _parse_row(data: Mapping[str, Any]) -> Row:
    values = {k: data[k] for k in ("id", "stage", "scope", "status", "seconds", "by_subject")}
    row: Row = decode(Row, {**values, "reason": data.get("reason", "")}, "checks")
    text, numbers = decode(str, data.get("text", "")), dict(data.get("measured", {}))
    lanes, curves = (data.get(name) for name in ("lanes", "curves"))
    measured = Measured(
        text,
        numbers,
        _parse_grid(data.get("grid")),
        None if lanes is None else decode(Lanes, lanes, "lanes"),
        None if curves is None else decode(Curves, curves, "curves"),
        decode(tuple[Device, ...], data.get("parts", []), "parts"),
    )
    return replace(row, measured=measured, required=bool(data.get("required", True)))


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
        now=decode(str, remedy.get("now", "")),
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


def _parse_observation(data: Mapping[str, Any]) -> Observation:
    marks = tuple(Mark(decode(str, name), decode(float, at)) for name, at in data.get("marks", []))
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
