"""Markdown for what shows it: a pull request, a ticket, the summary of a step of GitHub Actions.

The findings are a table, whose cells hold foreign text and are escaped; below it stands what the
screen says of them, in a code block, where nothing is obeyed and commands can be copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from preflight.humanize import duration
from preflight.model import Confidence, Finding, Report, Row, Status
from preflight.render import human
from preflight.render.findings import IN_FULL, about
from preflight.render.matrix import left_out, looked_at
from preflight.render.style import GLYPHS, WORDS
from preflight.sanitize import legible

ROWS = 100
"""Rows of a table; who has more findings reads the JSON report."""

ANNOTATIONS = 10
"""As many as GitHub shows of a step."""

LINES = 1000
"""Lines of the code block."""

# what begins something in GitHub's Markdown, inside of a line: also its formulas, tables and the
# links that it makes of bare addresses; an underscore within a word begins nothing
MARKUP = re.compile(r"[\\`*\[\]<>|~$&]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE)
MENTION = "@&#8203;"
"""An @ that calls nobody: no letter follows it at once, though the reader sees none between."""


def render(report: Report) -> str:
    """The whole report: heading, table, what to do."""
    return "\n\n".join([*_head(report), _table(report), *_screen(report)]) + "\n"


def brief(report: Report) -> str:
    """The verdict alone, for where there is no room."""
    return "\n\n".join([*_head(report), escaped(" · ".join(human.summary(report)))]) + "\n"


def workflow_commands(report: Report) -> Iterator[str]:
    """The findings as workflow commands of GitHub Actions, a line each."""
    kinds = {Status.FAIL: "error", Status.MISSING: "error", Status.WARN: "warning"}
    told = [finding for finding in report.findings if finding.status in kinds]
    for finding in told[:ANNOTATIONS]:
        title = legible(f"preflight {finding.name}").replace("%", "%25")
        title = title.replace(":", "%3A").replace(",", "%2C")
        text = legible(finding.headline).replace("%", "%25")
        yield f"::{kinds[finding.status]} title={title}::{text}"


def _head(report: Report) -> Iterator[str]:
    yield f"### preflight: {WORDS[report.verdict][0]}"
    yield from map(escaped, human.first_headline(report))
    yield escaped(" · ".join(human.title(report)))


def _table(report: Report) -> str:
    """The findings; where there are none, the checks and what they measured."""
    if report.findings:
        head = ("Result", "Finding", "Where", "What is wrong")
        cells = [_of_finding(finding) for finding in report.findings]
    else:
        head = ("Result", "Check", "Time", "Measured")
        ran = [r for r in report.rows if looked_at(r) or left_out(report, r)]
        cells = [_of_row(row) for row in ran]
    lines = [_line(head), _line("---" for _ in head)]
    lines += [_line(map(escaped, row)) for row in cells[:ROWS]]
    if len(cells) > ROWS:
        lines.append(_line(["…", f"{len(cells) - ROWS} more", "", ""]))
    return "\n".join(lines)


def _of_finding(finding: Finding) -> tuple[str, ...]:
    word = f"{GLYPHS[finding.status]} {finding.status.upper()}"
    if finding.status in IN_FULL and finding.confidence is not Confidence.CERTAIN:
        word += f", {finding.confidence}"
    return word, finding.name, about(finding.subjects), finding.headline


def _of_row(row: Row) -> tuple[str, ...]:
    time = "" if row.status is Status.SKIP else duration(row.seconds)
    word = f"{GLYPHS[row.status]} {row.status.upper()}"
    return word, row.id, time, row.measured.text or row.reason


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _screen(report: Report) -> Iterator[str]:
    """The findings and the verdict, as they stand on the screen; the verdict alone as a line."""
    lines = human.render(report, human.Look(quiet=True)).splitlines()
    if len(lines) == 1:
        yield escaped(" · ".join(human.summary(report)))
        return
    if len(lines) > LINES:
        lines = [*lines[:LINES], f"… {len(lines) - LINES} more lines"]
    # nothing foreign begins a line of the screen, so that none of them ends the block
    yield "\n".join(["```text", *lines, "```"])


def escaped(text: str) -> str:
    """Foreign text that is shown as it stands, on one line."""
    safe = MARKUP.sub(lambda found: f"\\{found[0]}", legible(text).strip())
    return safe.replace("@", MENTION)
