"""The screen: matrix, findings, verdict. Green is short, red is long; ids are never truncated.

`lines()` lays the report out as styled segments, pure and testable; `render()` makes text of them,
plain or with colours. Whoever calls decides on colours, glyphs and width: nothing is guessed here.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from preflight.model import (
    Cause,
    Confidence,
    Finding,
    Missing,
    Report,
    Row,
    Status,
    Verdict,
    place_of,
)
from preflight.units import duration, plural

WIDTH = 98
"""Columns where nothing says how wide the output is."""

ID_WIDTH = 17
LABEL_WIDTH = 11
MARKS_LIMIT = 16
"""Ranks of one node that get a mark each; more are counted."""

GLYPHS = {
    Status.PASS: "✓",
    Status.WARN: "!",
    Status.FAIL: "✗",
    Status.UNDECIDED: "?",
    Status.MISSING: "…",
    Status.SKIP: "–",
}
ASCII = {
    Status.PASS: "ok",
    Status.WARN: "!",
    Status.FAIL: "X",
    Status.UNDECIDED: "?",
    Status.MISSING: "M",
    Status.SKIP: "-",
}
STYLES = {
    Status.PASS: "green",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.UNDECIDED: "magenta",
    Status.MISSING: "red",
    Status.SKIP: "dim",
}
WORDS = {
    Verdict.READY: ("READY", "bold green"),
    Verdict.NOT_READY: ("NOT READY", "bold red"),
    Verdict.INCOMPLETE: ("INCOMPLETE", "bold red"),
    Verdict.UNDECIDED: ("UNDECIDED", "bold magenta"),
}
PLAIN = str.maketrans({"·": "|", "–": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=", "×": "x"})

Segment = tuple[str, str]
Line = list[Segment]


@dataclass(frozen=True, slots=True)
class Look:
    """How to print: decided once, by the command line."""

    width: int = WIDTH
    ascii: bool = False
    colour: bool = False
    quiet: bool = False
    verbose: bool = False
    saved_as: str = ""


def render(report: Report, look: Look = Look()) -> str:
    """The report as text that ends with a newline."""
    laid_out = list(lines(report, look))
    if look.ascii:
        laid_out = [
            [
                (text.translate(PLAIN).encode("ascii", "replace").decode(), style)
                for text, style in line
            ]
            for line in laid_out
        ]
    if look.colour:
        return _coloured(laid_out)
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in laid_out)


def _coloured(laid_out: Iterable[Line]) -> str:
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, no_color=False, color_system="standard", highlight=False
    )
    for line in laid_out:
        text = Text.assemble(*((t, s) for t, s in line))
        text.rstrip()
        console.print(text, soft_wrap=True, markup=False)
    return out.getvalue()


def lines(report: Report, look: Look) -> Iterator[Line]:
    """The whole screen."""
    if not look.quiet:
        yield from _header(report)
        yield []
        yield from _matrix(report, look)
        yield []
    if look.verbose:
        yield from _provenance(report, look)
    for finding in report.findings:
        yield from _finding(finding, look)
        yield []
    yield from _verdict(report, look)


def _header(report: Report) -> Iterator[Line]:
    seen = report.observations
    top = seen.topology
    nodes = plural(len(top.nodes), "node")
    ranks = plural(top.size, "rank")
    level = seen.settings.get("level")
    deadline = seen.settings.get("deadline")
    job = f" · job {top.job}" if top.job and top.job != "none" else ""
    text = f"preflight {seen.tool.get('version', '?')}{job} · {nodes}, {ranks}"
    if level and deadline:
        text += f" · level {level.value}, at most {deadline.value:.0f} s"
    yield [(text, "")]
    nproc = top.facts.get("nproc")
    source = nproc.source if nproc and top.launcher == "local" else top.launcher
    expected = [n.removeprefix("expect.") for n in seen.settings if n.startswith("expect.")]
    against = "expectations: " + (", ".join(expected) if expected else "none given")
    port = top.facts.get("master_port")
    note = f" ({port.source})" if port and "env" not in port.source else ""
    meeting = f"meeting at {top.master_addr}:{top.master_port}{note}"
    yield [(f"identity from {source} · {meeting} · {against}", "")]


# --- the matrix ---


def _matrix(report: Report, look: Look) -> Iterator[Line]:
    """One block a stage. All rows when all is well (or -v), else only the odd ones."""
    names = [node.name for node in report.observations.topology.nodes]
    widths = {
        name: max(len(name), *(len(_cell_text(row, name, look)) for row in report.rows), 0)
        for name in names
    }
    yield [(" " * (ID_WIDTH + 2), "")] + [(f"{n:<{widths[n] + 2}}", "bold") for n in names]
    well = report.verdict is Verdict.READY
    for stage in dict.fromkeys(row.stage for row in report.rows):
        rows = [row for row in report.rows if row.stage == stage]
        passed = sum(row.status in (Status.PASS, Status.WARN) for row in rows)
        odd = [row for row in rows if row.status not in (Status.PASS, Status.SKIP)]
        blocked = _all_blocked(rows)
        if well or look.verbose:
            yield [(f" {stage}", "bold")]
            shown = rows
        elif blocked:
            yield [(f" {stage:<9} ", "bold"), (f"not run: {blocked}", "")]
            shown = []
        else:
            yield [(f" {stage:<9} ", "bold"), (f"{passed} of {len(rows)} passed", "")]
            shown = odd + [r for r in rows if r.status is Status.SKIP and _left_out(report, r)]
            shown = [row for row in rows if row in shown]
        for row in shown:
            yield _row(row, names, widths, look)


def _all_blocked(rows: list[Row]) -> str:
    """`needs a, b` when a whole stage was not run because of other checks."""
    reasons = {row.reason for row in rows}
    blocked = all(r.status is Status.SKIP and r.reason.startswith("needs ") for r in rows)
    return ", ".join(sorted(reasons)) if blocked and rows else ""


def _left_out(report: Report, row: Row) -> bool:
    """Whether a skipped row is more than 'nothing to look at here'."""
    return any(
        isinstance(o, Missing) and o.cause is not Cause.NOT_APPLICABLE
        for o in report.observations.checks.get(row.id, {}).values()
    )


def _marks(row: Row, node: str) -> list[Status]:
    return [s for key, s in row.by_subject.items() if place_of(key)[0] == node]


def _cell(row: Row, node: str, look: Look) -> Line:
    """The marks of one node: one each for up to MARKS_LIMIT ranks, else a count of each kind."""
    glyphs = ASCII if look.ascii else GLYPHS
    marks = _marks(row, node)
    if len(marks) > MARKS_LIMIT or (look.ascii and len(marks) > 1):
        kinds = dict.fromkeys(marks)
        cells = [(f"{glyphs[s]}{marks.count(s)}", STYLES[s]) for s in kinds]
        return [(t + (" " if i + 1 < len(cells) else ""), s) for i, (t, s) in enumerate(cells)]
    return [(glyphs[s], STYLES[s]) for s in marks]


def _cell_text(row: Row, node: str, look: Look) -> str:
    return "".join(text for text, _ in _cell(row, node, look))


def _row(row: Row, names: list[str], widths: dict[str, int], look: Look) -> Line:
    line: Line = [(f"  {row.id:<{ID_WIDTH}}", "")]
    for name in names:
        cell = _cell(row, name, look)
        line += cell
        line.append((" " * (widths[name] + 2 - sum(len(t) for t, _ in cell)), ""))
    text = row.measured.text
    if row.status is Status.SKIP or not text:
        text = row.reason or text
    seconds = f"{row.seconds:.1f}s" if row.status is not Status.SKIP else ""
    room = look.width - sum(len(t) for t, _ in line) - 6
    if room < 8:
        return line
    text = " ".join(text.split())
    if len(text) > room:
        text = text[: room - 1] + "…"
    line.append((f"{text:<{room}} {seconds:>5}", "dim" if row.status is Status.SKIP else ""))
    return line


# --- findings ---


def _finding(finding: Finding, look: Look) -> Iterator[Line]:
    """One finding in the fixed vocabulary (saw, expected, explains, means, do now, fix, who)."""
    glyph = (ASCII if look.ascii else GLYPHS)[finding.status]
    subject = str(finding.subjects[0])
    others = len(finding.subjects) - 1
    ranks = finding.subjects[0].ranks
    about = subject + (f" and {others} more" if others > 0 else "")
    if ranks and "rank" not in subject:
        about += f" · {_ranks(ranks)}"
    head = f"{finding.check}   {about}"
    word = f"{finding.status.upper()}, {finding.confidence}"
    gap = max(3, look.width - len(head) - len(word) - 4)
    yield [
        (f" {glyph} ", STYLES[finding.status]),
        (finding.check, "bold"),
        (f"   {about}", ""),
        (" " * gap, ""),
        (word, STYLES[finding.status]),
    ]
    advice = finding.advice
    full = finding.status is Status.FAIL or look.verbose
    yield from _labelled("saw", finding.saw, look)
    yield from _labelled("expected", finding.expected, look)
    yield from _labelled("explains", " · ".join(finding.folded), look)
    if finding.confidence is Confidence.POSSIBLE or finding.alternatives:
        yield from _labelled("or else", " · ".join(finding.alternatives), look)
    if advice is not None:
        yield from _labelled("means", advice.means, look)
        yield from _labelled("do now", advice.now, look)
        yield from _labelled("fix", advice.text, look)
        for command in advice.commands:
            where = f"on {command.where}" if command.where else ""
            disturbs = f"disturbs {command.disturbs}" if command.disturbs != "nothing" else ""
            aside = ", ".join(part for part in (where, disturbs) if part)
            yield [
                (" " * (3 + LABEL_WIDTH + 2), ""),
                (command.run, "bold"),
                (f"   {aside}" if aside else "", "dim"),
            ]
        if full:
            yield from _labelled("who", advice.who, look)
    if full or finding.status is Status.UNDECIDED:
        yield from _labelled("more", f"preflight explain {finding.check}", look)


def _ranks(ranks: tuple[int, ...]) -> str:
    """`rank 3`, `ranks 0-3`, `ranks 0,2,5`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return "ranks " + ",".join(map(str, ranks))


def _labelled(label: str, text: str, look: Look) -> Iterator[Line]:
    """`label   text`, continued below itself where it is longer than the screen."""
    if not text:
        return
    room = max(24, look.width - LABEL_WIDTH - 3)
    parts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    for number, part in enumerate(parts):
        yield [(f"   {label if number == 0 else '':<{LABEL_WIDTH}}", "dim"), (part, "")]


# --- provenance and verdict ---


def _provenance(report: Report, look: Look) -> Iterator[Line]:
    """-v: where each number came from, and how far each observation got."""
    seen = report.observations
    for name, fact in sorted(seen.topology.facts.items()):
        yield from _labelled(name, f"{fact.value} · {fact.source}", look)
    for name, setting in sorted(seen.settings.items()):
        yield from _labelled(name, f"{setting.value} · {setting.source}", look)
    for check, by_key in seen.checks.items():
        for key, observation in by_key.items():
            if observation.marks:
                steps = " · ".join(f"{m.name} {duration(m.at)}" for m in observation.marks[:12])
                yield from _labelled("marks", f"{check} {key}: {steps}", look)
    yield []


def _verdict(report: Report, look: Look) -> Iterator[Line]:
    word, style = WORDS[report.verdict]
    seen = report.observations
    counts = [
        _counted(report, Status.FAIL, "finding"),
        _counted(report, Status.WARN, "warning"),
        _counted(report, Status.UNDECIDED, "undecided", "undecided"),
    ]
    passed = sum(row.status in (Status.PASS, Status.WARN) for row in report.rows)
    applicable = [r for r in report.rows if r.status is not Status.SKIP or _left_out(report, r)]
    checks = f"{passed} of {plural(len(applicable), 'check')} passed"
    ranks = f"{seen.topology.met}/{seen.topology.size} ranks"
    parts = [c for c in counts if c] + [checks, ranks, duration(seen.seconds)]
    interrupted = f" · interrupted by {seen.interrupted}: partial" if seen.interrupted else ""
    yield [(f" {word}   ", style), (" · ".join(parts) + interrupted, "")]
    if report.skipped:
        yield [(" skipped     ", "dim"), (" · ".join(report.skipped) + "   (by you)", "")]
    if report.tolerated:
        yield [(" tolerated   ", "dim"), (" · ".join(report.tolerated), "")]
    for left in seen.left_behind:
        where = f", in {left.wchan}" if left.wchan else ""
        yield [(" left behind ", "dim"), (f"pid {left.pid}, state {left.state}{where}", "")]
    if look.saved_as:
        saved = f"{look.saved_as}   (preflight show {look.saved_as})"
        yield [(" report      ", "dim"), (saved, "")]
    if now := do_now(report):
        yield [(" do now      ", "bold"), (now, "")]


def _counted(report: Report, status: Status, one: str, many: str = "") -> str:
    found = [f for f in report.findings if f.status is status]
    if not found:
        return ""
    folded = len({check for f in found for check in f.folded})
    also = f" (explains {folded} more)" if folded else ""
    return (f"{len(found)} {many}" if many else plural(len(found), one)) + also


def do_now(report: Report) -> str:
    """The one line to act on: leave bad nodes out where there is a scheduler, else what the first
    failure says."""
    job = report.observations.topology.launcher == "SLURM"
    if report.exclude and job and len(report.observations.topology.nodes) > len(report.exclude):
        return f"sbatch --exclude={','.join(report.exclude)} …"
    if report.verdict is Verdict.READY:
        return ""
    for finding in report.findings:
        advice = finding.advice
        if advice is None:
            continue
        first = advice.now or (advice.commands[0].run if advice.commands else "") or advice.text
        if first:
            return " ".join(first.split())
    return ""
