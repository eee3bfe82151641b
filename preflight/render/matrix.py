"""The matrix: a block a stage, a row a check, a column a node, a mark a rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from preflight.model import Cause, Missing, Report, Row, Status, Verdict, place_of
from preflight.render.look import ID_WIDTH, MARKS_LIMIT, STYLES, Line, Look, flow
from preflight.render.text import cut


@dataclass(frozen=True, slots=True)
class _Grid:
    """The columns of the matrix: the ids, then each node's name and how wide its marks are."""

    ids: int
    nodes: tuple[tuple[str, int], ...]


def _grid(report: Report, look: Look) -> _Grid:
    longest = max((len(look.say(row.id)) for row in report.rows), default=0)
    names = [node.name for node in report.observations.topology.nodes]
    cells = {
        name: max(
            (sum(len(t) for t, _ in _cell(row, name, look)) for row in report.rows), default=1
        )
        for name in names
    }
    # the last name may reach over the measured column, which has no heading
    widths = [max(cells[n], len(look.say(n))) for n in names[:-1]] + [cells[n] for n in names[-1:]]
    ids = longest + 2 if look.narrow else max(ID_WIDTH, longest + 2)
    return _Grid(ids, tuple(zip(names, widths, strict=True)))


def matrix(report: Report, look: Look) -> Iterator[Line]:
    """One block a stage. All rows when all is well (or -v), else only the odd ones."""
    grid = _grid(report, look)
    heading: Line = [(" " * (grid.ids + 2), "")]
    for name, width in grid.nodes:
        heading.append((f"{look.say(name):<{width}}  ", "bold"))
    yield heading
    everything = report.verdict is Verdict.READY or look.verbose
    for stage in dict.fromkeys(row.stage for row in report.rows):
        rows = [row for row in report.rows if row.stage == stage]
        left = [row for row in rows if row.status is Status.SKIP and left_out(report, row)]
        ran = [row for row in rows if row.status is not Status.SKIP]
        title = (f" {look.say(stage):<9} ", "bold")
        if everything:
            yield [title]
            shown = rows
        elif left and not ran:
            yield from flow([f"not run: {_reasons(left, look)}"], look, [title], 11)
            continue
        else:
            passed = sum(row.status is Status.PASS for row in ran)
            of = len(ran) + len(left)
            yield [title, (f"{passed} of {of} passed" if of else "nothing to look at here", "")]
            shown = [r for r in rows if r in left or r.status not in (Status.PASS, Status.SKIP)]
        for row in shown:
            yield _row(report, row, grid, look)


def left_out(report: Report, row: Row) -> bool:
    """Whether a skipped row is more than 'nothing to look at here'."""
    return any(
        isinstance(o, Missing) and o.cause is not Cause.NOT_APPLICABLE
        for o in report.observations.checks.get(row.id, {}).values()
    )


def _reasons(rows: Iterable[Row], look: Look) -> str:
    """Why rows were not run, each reason once: `needs net.port, env.vars`."""
    told = dict.fromkeys(look.say(row.reason).removeprefix("not started: ") for row in rows)
    needs = [reason.removeprefix("needs ") for reason in told if reason.startswith("needs ")]
    others = [reason for reason in told if not reason.startswith("needs ")]
    return "; ".join([f"needs {', '.join(needs)}"] * bool(needs) + others)


def _cell(row: Row, node: str, look: Look) -> Line:
    """The marks of one node: one each for up to MARKS_LIMIT ranks, else a count of each kind."""
    marks = [s for key, s in row.by_subject.items() if place_of(key)[0] == node]
    if len(marks) > MARKS_LIMIT or (look.ascii and len(marks) > 1):
        kinds = list(dict.fromkeys(marks))
        cells = [(f"{look.glyph(s)}{marks.count(s)}", STYLES[s]) for s in kinds]
        return [(t + (" " if i + 1 < len(cells) else ""), s) for i, (t, s) in enumerate(cells)]
    return [(look.glyph(s), STYLES[s]) for s in marks]


def _row(report: Report, row: Row, grid: _Grid, look: Look) -> Line:
    line: Line = [(f"  {look.say(row.id):<{grid.ids}}", "")]
    for name, width in grid.nodes:
        cell = _cell(row, name, look)
        line += cell
        line.append((" " * (width + 2 - sum(len(t) for t, _ in cell)), ""))
    time = ""
    if row.status is not Status.SKIP and not look.narrow:
        time = f"{row.seconds:.1f}s" if row.seconds < 99.95 else f"{row.seconds:.0f}s"
    used = sum(len(text) for text, _ in line)
    room = look.width - used - (0 if look.narrow else 6)
    if room >= 8:
        text = cut(look.say(_told(report, row)), room, "..." if look.ascii else "…")
        style = "dim" if row.status is Status.SKIP else ""
        line.append((text if look.narrow else f"{text:<{room}} {time:>5}", style))
    return line


def _told(report: Report, row: Row) -> str:
    """What a row says on its right: what was measured, else why there is nothing."""
    if row.status is Status.SKIP and row.reason:
        return row.reason
    own = next((f.saw for f in report.findings if f.check == row.id), "")
    cause = next((f.check for f in report.findings if row.id in f.folded), "")
    return row.measured.text or own or row.reason or (f"follows from {cause}" if cause else "")
