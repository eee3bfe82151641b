"""What the templates are filled with: the report in the order in which a page shows it. Everything
here is text as others wrote it; the environment of Jinja2 escapes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from preflight import __version__
from preflight.baseline.diff import NOISE, PARTS, Difference, Number
from preflight.frozen import dataclass
from preflight.humanize import duration, plural
from preflight.model import (
    DRAWN_NODES,
    WEIGHT,
    Confidence,
    Finding,
    Report,
    Row,
    Status,
    Subject,
    Verdict,
    place_of,
)
from preflight.nodeset import folded
from preflight.render import human
from preflight.render.findings import IN_FULL, about, aside, documentation
from preflight.render.html import drawings, embedded
from preflight.render.matrix import left_out, looked_at
from preflight.render.style import GLYPHS, WORDS

CARDS = 60
"""Findings with a card; the embedded report has all of them."""
SAID = 2000
"""Changes and numbers of a difference that are shown."""
OPENED = 8
"""As many nodes are named in a card; more are folded."""


@dataclass(frozen=True, slots=True)
class CardCommand:
    """A command that can be copied, and where to type it."""

    run: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class FindingCard:
    """A finding: its words, in the order of the screen, its commands, and whom it is about."""

    finding: Finding
    word: str
    where: str
    nodes: Sequence[str]
    told: Sequence[tuple[str, str]]
    now: CardCommand | None
    actions: Sequence[CardCommand]
    link: str


LONGEST = 300
"""Characters of a list of nodes, beyond which only their number is told."""


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """A node and a check in the matrix: the letter of its class, its glyph, and how many of its
    ranks say so where they don't agree."""

    status: str
    glyph: str
    count: str


@dataclass(frozen=True, slots=True)
class CheckTold:
    """A check: what the screen's row says of it, and on which nodes it has which status."""

    row: Row
    time: str
    text: str
    on: Sequence[tuple[str, str]]


def of_report(report: Report) -> dict[str, Any]:
    """All that report.html.j2 names."""
    ids = _columns(report)
    machines, left = drawings.machines(report)
    return {
        **_common(report),
        "cards": [_card(report, finding) for finding in report.findings[:CARDS]],
        "unshown": max(0, len(report.findings) - CARDS),
        "pictures": list(_pictures(report)),
        "ids": ids,
        "matrix": _matrix(report, ids),
        "checks": [_told(report, row) for row in report.rows],
        "machines": machines,
        "machines_left": left,
        "settings": sorted(_provenance(report).items()),
        "blocks": list(embedded.packed(report)),
        "glyphs": {str(status): glyph for status, glyph in GLYPHS.items()},
    }


def _common(report: Report) -> dict[str, Any]:
    """What the head of a page says."""
    word, _ = WORDS[report.verdict]
    headlines = human.first_headline(report)
    first = next((f.headline for f in report.findings if f.status is Status.WARN), "")
    warned = f"The job can start, but {first}" if first and report.verdict is Verdict.READY else ""
    now = human.do_now(report)
    return {
        "version": __version__,
        "word": word,
        "verdict": str(report.verdict),
        "glyph": VERDICTS[report.verdict],
        "headline": headlines[0] if headlines else warned or CALM[report.verdict],
        "title": human.title(report),
        "started": report.observations.started,
        "summary": human.summary(report),
        "now": now.partition("   ")[0],
        "now_aside": now.partition("   ")[2].strip(),
        "repair": "" if now else human.repair(report),
        "notes": list(_notes(report)),
        "type": embedded.TYPE,
    }


VERDICTS = {
    Verdict.READY: GLYPHS[Status.PASS],
    Verdict.NOT_READY: GLYPHS[Status.FAIL],
    Verdict.INCOMPLETE: GLYPHS[Status.MISSING],
    Verdict.UNDECIDED: GLYPHS[Status.UNDECIDED],
}
CALM = {
    Verdict.READY: "Nothing that was checked keeps the job from running.",
    Verdict.NOT_READY: "The job would not run well.",
    Verdict.INCOMPLETE: "Not every rank came.",
    Verdict.UNDECIDED: "Something that the job needs could not be checked.",
}


def _notes(report: Report) -> Iterator[tuple[str, str]]:
    """What was left out of the run, and what it left behind."""
    why: dict[str, list[str]] = {}
    for row in report.rows:
        if left_out(report, row) and row.id not in report.skipped:
            why.setdefault(row.reason.removeprefix("not started: "), []).append(row.id)
    yield from (("not run", f"{', '.join(ids)}: {reason}") for reason, ids in why.items())
    if report.skipped:
        yield "skipped", f"{', '.join(report.skipped)}: by you"
    if report.tolerated:
        yield "tolerated", ", ".join(report.tolerated)
    for process in report.observations.left_behind:
        where = f", in {process.wchan}" if process.wchan else ""
        yield "left behind", f"pid {process.pid}, state {process.state}{where}"


def _card(report: Report, finding: Finding) -> FindingCard:
    advice = finding.advice
    word = str(finding.status).upper()
    if finding.confidence is not Confidence.CERTAIN and finding.status is not Status.UNDECIDED:
        word += f", {finding.confidence}"
    told = [("saw", "" if finding.saw in finding.headline else finding.saw)]
    told += [("expected", finding.expected), ("explains", " · ".join(finding.folded))]
    told += [("could also be", " · ".join(finding.alternatives))]
    actions, now = [], None
    if advice is not None:
        told += [("cause", advice.cause if finding.status in IN_FULL else "")]
        told += [("means", advice.means), ("fix", advice.text), ("who", advice.who)]
        if advice.now:
            command, _, remark = advice.now.partition("   ")
            now = CardCommand(command, remark.strip())
        alone = len(report.observations.topology.nodes) < 2
        node = finding.subjects[0].node
        actions = [
            CardCommand(command.run, aside(command, "" if alone else node, alone))
            for command in advice.commands
        ]
    nodes = list(dict.fromkeys(s.node for s in finding.subjects if s.node))
    return FindingCard(
        finding=finding,
        word=word,
        where=about(finding.subjects),
        nodes=nodes if len(nodes) > OPENED else (),
        told=[(label, text) for label, text in told if text],
        now=now,
        actions=actions,
        link=documentation(report, finding),
    )


def _pictures(report: Report) -> Iterator[tuple[str, str, Any, bool]]:
    """(kind, check, what is drawn, whether it is seen at once), those of checks that have found
    something first; how the ranks came up stands behind them, or first where somebody is missing
    or late. Whom the findings of a stage are about is marked in its pictures."""
    found = [finding.check for finding in report.findings]
    rows = sorted(report.rows, key=lambda r: found.index(r.id) if r.id in found else len(found))
    stages = {row.id: row.stage for row in report.rows}
    late = "meeting" in {stages.get(check) for check in found}

    def accused(*of: str) -> list[Subject]:
        return drawings.accused_by([f for f in report.findings if stages.get(f.check) in of])

    up = drawings.bring_up(report)
    drawn_up = up and drawings.lanes_of(up, accused(*drawings.BRING_UP))
    if drawn_up and late:
        yield "lanes", "", drawn_up, True
    for row in rows:
        measured, whom = row.measured, accused(row.stage)
        opened = row.id in found or row.stage == "job" or not found
        if measured.grid is not None and (made := drawings.map_of(measured.grid)):
            yield "map", row.id, made, opened
        # when each node came stands in how the ranks came up
        alone = not (row.stage == "meeting" and drawn_up)
        if measured.lanes and alone and (lanes := drawings.lanes_of(measured.lanes, whom)):
            yield "lanes", row.id, lanes, opened
        if measured.curves and (curves := drawings.curves_of(measured.curves, whom)):
            yield "curves", row.id, curves, opened
    if drawn_up and not late:
        yield "lanes", "", drawn_up, True


def _columns(report: Report) -> list[str]:
    """The checks of the matrix: those that were made, or left out for a reason."""
    return [r.id for r in report.rows if looked_at(r) or left_out(report, r) or r.reason]


def _matrix(report: Report, ids: Sequence[str]) -> list[tuple[str, list[MatrixCell | None]]]:
    """Each node with its cells, the worst nodes first; None: the check says nothing of it."""
    rows = {row.id: row for row in report.rows}
    by_node: dict[str, dict[str, list[Status]]] = {
        node.name: {} for node in report.observations.topology.nodes
    }
    for i in ids:
        for key, status in rows[i].by_subject.items():
            node, _ = place_of(key)
            by_node.setdefault(node, {}).setdefault(i, []).append(status)

    def weight(name: str) -> tuple[int, int]:
        worst = [max(map(WEIGHT.__getitem__, of)) for of in by_node[name].values()]
        serious = [w for w in worst if w >= WEIGHT[Status.WARN]]
        return -max(serious, default=0), -len(serious)

    made: dict[tuple[Status, ...], MatrixCell] = {}
    lines: list[tuple[str, list[MatrixCell | None]]] = []
    for name in sorted(by_node, key=weight):
        cells: list[MatrixCell | None] = []
        for i in ids:
            statuses = tuple(by_node[name].get(i, ()))
            if not statuses:
                cells.append(None)
                continue
            if statuses not in made:
                made[statuses] = _cell(statuses)
            cells.append(made[statuses])
        lines.append((name, cells))
    return lines if len(lines) <= DRAWN_NODES else list(_folded_lines(lines))


def _folded_lines(
    lines: Sequence[tuple[str, list[MatrixCell | None]]],
) -> Iterator[tuple[str, list[MatrixCell | None]]]:
    """One line for all nodes of which it would be the same: no browser scrolls through ten
    thousand."""
    alike: dict[tuple[MatrixCell | None, ...], list[str]] = {}
    for name, cells in lines:
        alike.setdefault(tuple(cells), []).append(name)
    for kinds, names in alike.items():
        told = folded(names)
        yield told if len(told) <= LONGEST else plural(len(names), "node"), list(kinds)


def _cell(statuses: Sequence[Status]) -> MatrixCell:
    worst = max(statuses, key=WEIGHT.__getitem__)
    count = statuses.count(worst)
    told = "" if count == len(statuses) else str(count)
    return MatrixCell(str(worst)[0], GLYPHS[worst], told)


def _told(report: Report, row: Row) -> CheckTold:
    time = "" if row.status is Status.SKIP else duration(row.seconds)
    nodes: dict[Status, dict[str, None]] = {}
    for key, status in row.by_subject.items():
        nodes.setdefault(status, {})[place_of(key)[0]] = None
    total = len({name for of in nodes.values() for name in of})
    on = []
    for status in sorted(nodes, key=WEIGHT.__getitem__, reverse=True):
        names = list(nodes[status])
        told = plural(len(names), "node") if len(names) == total else folded(names)
        on.append((str(status), told if len(told) <= LONGEST else plural(len(names), "node")))
    return CheckTold(row, time, row.measured.text or row.reason, on if total > 1 else ())


def _provenance(report: Report) -> dict[str, str]:
    seen = report.observations
    facts = {name: f"{fact.value} · {fact.source}" for name, fact in seen.topology.facts.items()}
    return facts | dict(human.setting_lines(seen.settings))


# --- two reports ---


@dataclass(frozen=True, slots=True)
class Bars:
    """A number before and after, as parts of the larger one in thousandths."""

    number: Number
    before: float
    after: float
    told: tuple[str, str]
    change: str


def of_difference(
    names: tuple[str, str], reports: tuple[Report, Report], found: Difference
) -> dict[str, Any]:
    """All that diff.html.j2 names."""
    counts = Counter(change.part for change in found.changes)
    sides = [
        {**_common(report), "name": name, "label": label}
        for label, name, report in zip(("before", "after"), names, reports, strict=True)
    ]
    return {
        **_common(reports[1]),
        "sides": sides,
        "came": folded(found.came),
        "gone": folded(found.gone),
        "parts_changed": [
            (part, [c for c in found.changes if c.part == part][:SAID])
            for part in PARTS
            if counts[part]
        ],
        "bars": [_bars(number) for number in found.numbers[:SAID]],
        "noise": NOISE,
        "folded": folded,
        "blocks": list(embedded.packed(reports[1])),
    }


def _bars(number: Number) -> Bars:
    top = max(abs(number.before), abs(number.after), 1e-300)
    share = f"{number.after / number.before - 1:+.0%}" if number.before else "new"
    was, now = number.before, number.after
    told = (f"{was:.4g}", f"{now:.4g}")
    if number.seconds is not None:
        told = duration(was * number.seconds), duration(now * number.seconds)
    return Bars(number, 1000 * abs(was) / top, 1000 * abs(now) / top, told, share)
