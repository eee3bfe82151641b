"""JUnit XML for what reads test reports: a suite a node, a case a check.

    failure  FAIL
    error    UNDECIDED of a check that is needed to start, MISSING, not looked at
    skipped  SKIP, and UNDECIDED of a check that is not needed

Something is red exactly where the report does not exit 0: what no node's case says (a rank that
nobody knows the node of, a run that was cut short) is a case of a suite for all nodes. In ASCII,
with references for all else, so that it is the same on every stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from xml.etree import ElementTree as ET

from preflight.frozen import dataclass
from preflight.humanize import epoch
from preflight.model import (
    DRAWN_NODES,
    WEIGHT,
    Cause,
    Finding,
    Missing,
    Observation,
    Report,
    Row,
    Status,
    Verdict,
    place_of,
)
from preflight.nodeset import folded
from preflight.render.findings import finding_lines
from preflight.render.human import summary
from preflight.render.style import GLYPHS, Look
from preflight.sanitize import legible

ALL = "all nodes"
"""The suite of what is no single node's; no host has a blank in its name."""

LONGEST = 1000
"""Characters of the name of a suite for many nodes."""

NO_TIME = "1970-01-01T00:00:00"
"""Readers want a time also where the report has none."""

IN_FULL = Look(verbose=True)
"""A finding in a case is said in full, whatever its weight."""

NO_XML = re.compile("[\ufffe\uffff]")
"""Characters that XML has no place for, beside those that nobody can read."""

RED = ("failure", "error")


@dataclass(frozen=True, slots=True)
class _Case:
    """One check on one node. `kind` is failure, error, skipped, or empty: passed. `body` is what is
    said of it in full; of one that passed it is what its suite has to say."""

    id: str
    seconds: float
    kind: str = ""
    type: str = ""
    message: str = ""
    body: str = ""


def render(report: Report) -> str:
    """The document, declaration included."""
    suites = _of_nodes(report)
    if of_all := list(_of_all(report, [case for cases in suites.values() for case in cases])):
        suites[ALL] = of_all
    root = ET.Element("testsuites")
    properties = _properties(report)
    told = suites if len(suites) <= DRAWN_NODES else _folded(suites)
    for number, (name, cases) in enumerate(told.items()):
        _suite(root, report, number, name, cases, properties)
    ET.indent(root, " ")
    text: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return text.decode("ascii") + "\n"


def _folded(suites: Mapping[str, list[_Case]]) -> dict[str, list[_Case]]:
    """One suite for all nodes with the same cases, of each the one that took longest."""
    alike: dict[tuple[_Case, ...], list[str]] = {}
    for name, cases in suites.items():
        alike.setdefault(tuple(replace(case, seconds=0.0) for case in cases), []).append(name)
    found: dict[str, list[_Case]] = {}
    for names in alike.values():
        text = folded(names)
        if len(text) > LONGEST:
            text = f"{names[0]} and {len(names) - 1} more"
        several = zip(*(suites[name] for name in names), strict=True)
        found[text] = [max(cases, key=lambda case: case.seconds) for cases in several]
    return found


def _of_nodes(report: Report) -> dict[str, list[_Case]]:
    """The cases of those that came, and of those of whom a check says something without that."""
    came = [node.name for node in report.observations.topology.nodes]
    suites: dict[str, list[_Case]] = {name: [] for name in came}
    for row in report.rows:
        told = _Cases(report, row)
        worst: dict[str, Status] = {}
        for key, status in row.by_subject.items():
            node = place_of(key)[0]
            worst[node] = max(status, worst.get(node, status), key=WEIGHT.__getitem__)
        observed: dict[str, list[Observation]] = {}
        for key, observation in report.observations.checks.get(row.id, {}).items():
            observed.setdefault(place_of(key)[0], []).append(observation)
        for node, status in worst.items():
            case = told.case(status, node, observed.get(node, ()))
            suites.setdefault(node, []).append(case)
        if row.required:
            blind = _Case(row.id, 0.0, "error", "not-looked-at", "not looked at on this node")
            for node in [name for name in came if name not in worst]:
                suites[node].append(blind)
    return suites


def _of_all(report: Report, shown: Sequence[_Case]) -> Iterator[_Case]:
    """What the nodes' cases leave out: of whom nothing was observed, and at last the verdict where
    nothing else is red."""
    red = any(case.kind in RED for case in shown)
    for row in report.rows:
        weights = [WEIGHT[status] for status in row.by_subject.values()]
        if WEIGHT[row.status] > max([*weights, WEIGHT[Status.WARN]]):
            case = _Cases(report, row).case(row.status)
            red = red or case.kind in RED
            yield case
    if report.exit_code and not red:
        kind = "failure" if report.verdict is Verdict.NOT_READY else "error"
        body = _full_text(report, report.findings)
        told = " · ".join(summary(report))
        yield _Case("preflight.verdict", 0.0, kind, str(report.verdict), told, body)


class _Cases:
    """What a report says of one check, for each node on which it did not pass."""

    def __init__(self, report: Report, row: Row) -> None:
        self.report, self.row = report, row
        self.own = [(f, _nodes(f)) for f in report.findings if f.check == row.id]
        self.causes = [(f, _nodes(f)) for f in report.findings if row.id in f.folded]
        self._bodies: dict[tuple[int, ...], str] = {}

    def case(self, status: Status, node: str = "", observed: Sequence[Observation] = ()) -> _Case:
        """The case of a node, or of nobody who was observed."""
        row = self.row
        seconds = max((o.seconds for o in observed), default=0.0)
        if status is Status.PASS:
            measured = legible(row.measured.text)
            return _Case(row.id, seconds, body=f" {GLYPHS[status]} {row.id}   {measured}")
        why = _reason(observed) or row.reason
        if status is Status.SKIP:
            return _Case(row.id, seconds, "skipped", message=why)
        own = [f for f, on in self.own if f.status is status and (node in on or not (node and on))]
        # what it follows from may have happened elsewhere
        found = own or [f for f, on in self.causes if node in on] or [f for f, _ in self.causes]
        message = found[0].headline if found else why or str(status)
        if found and not own:
            message = f"follows from {found[0].name}: {message}"
        if status is Status.UNDECIDED and not row.required:
            return _Case(row.id, seconds, "skipped", message=f"not needed to start: {message}")
        kind = {Status.WARN: "", Status.FAIL: "failure"}.get(status, "error")
        code = own[0].code if own else str(status)
        return _Case(row.id, seconds, kind, code, message, self._body(found))

    def _body(self, found: Sequence[Finding]) -> str:
        """Made once, however many nodes it is about."""
        key = tuple(map(id, found))
        if key not in self._bodies:
            self._bodies[key] = _full_text(self.report, found, self.row.required)
        return self._bodies[key]


def _nodes(finding: Finding) -> frozenset[str]:
    return frozenset(name for s in finding.subjects for name in (s.node, s.to) if name)


def _reason(observed: Iterable[Observation]) -> str:
    """Why there is nothing to judge."""
    missing = next((o for o in observed if isinstance(o, Missing)), None)
    if missing is None:
        return ""
    if missing.cause is Cause.BLOCKED:
        return ": ".join(part for part in (f"needs {missing.by}", missing.detail) if part)
    return missing.detail or str(missing.cause).replace("_", " ")


def _full_text(report: Report, found: Iterable[Finding], required: bool = True) -> str:
    """Findings as the screen says them."""
    lines = [
        "".join(text for text, _ in line).rstrip()
        for finding in found
        for line in finding_lines(finding, IN_FULL, report, required)
    ]
    return "\n".join(lines)


# --- XML ---


def _suite(
    root: ET.Element,
    report: Report,
    number: int,
    name: str,
    cases: Sequence[_Case],
    told: Mapping[str, str],
) -> None:
    seen = report.observations
    first = seen.topology.nodes[0].name if seen.topology.nodes else "localhost"
    kinds = [case.kind for case in cases]
    about = {
        "id": str(number),
        "package": "preflight",
        "name": _token(name),
        "hostname": _token(first if name == ALL else name),
        # of the zone that it is in nothing may be said
        "timestamp": seen.started[:19] if epoch(seen.started) is not None else NO_TIME,
        "time": _decimal(seen.seconds),
        "tests": str(len(cases)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
    }
    suite = ET.SubElement(root, "testsuite", about)
    properties = ET.SubElement(suite, "properties")
    for what, value in told.items():
        ET.SubElement(properties, "property", {"name": what, "value": _text(value)})
    for case in cases:
        _testcase(suite, case)
    # readers that go by the schema of Ant's JUnit task want both, in this order and in no case
    measured = [case.body for case in cases if not case.kind and case.body]
    ET.SubElement(suite, "system-out").text = _block("\n".join(measured)) or None
    ET.SubElement(suite, "system-err")


def _properties(report: Report) -> Mapping[str, str]:
    seen = report.observations
    level = seen.settings.get("level")
    return {
        "version": seen.tool.get("version", ""),
        "verdict": str(report.verdict),
        "level": str(level.value) if level else "",
        "launcher": seen.topology.launcher,
        "job": seen.topology.job,
        "ranks": f"{seen.topology.met}/{seen.topology.size}",
    }


def _testcase(suite: ET.Element, case: _Case) -> None:
    group = case.id.partition(".")[0]
    named = {"classname": _token(group), "name": _token(case.id), "time": _decimal(case.seconds)}
    element = ET.SubElement(suite, "testcase", named)
    if case.kind == "skipped":
        ET.SubElement(element, "skipped", {"message": _text(case.message)})
    elif case.kind:
        told = {"type": _text(case.type), "message": _text(case.message)}
        ET.SubElement(element, case.kind, told).text = _block(case.body)


def _text(text: str) -> str:
    """Foreign text on one line, without what XML has no place for."""
    return NO_XML.sub("\ufffd", legible(text))


def _block(text: str) -> str:
    return "\n".join(map(_text, text.splitlines()))


def _token(text: str) -> str:
    """A name without blanks at its ends, and never empty."""
    return " ".join(_text(text).split()) or "unknown"


def _decimal(seconds: float) -> str:
    return f"{max(0.0, seconds):.3f}"
