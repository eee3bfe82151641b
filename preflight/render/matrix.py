"""The matrix: a block a stage, a row a check, a column a node, a mark a rank.

Where the columns of all nodes don't fit, a row says of how many nodes the same is true and names
the others: `gpu.visible  ✓ 62   ✗ gpu-b[07,19]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from preflight.frozen import dataclass
from preflight.humanize import rank_list
from preflight.model import WEIGHT, Cause, Missing, Report, Row, Status, Verdict, of_each, place_of
from preflight.nodeset import folded
from preflight.render.layout import cut, wrapped
from preflight.render.style import (
    ID_WIDTH,
    MARKS_LIMIT,
    MEASURED_WIDTH,
    STYLES,
    Line,
    Look,
    Segment,
    flow,
)

Marks = Mapping[str, tuple[tuple[int | None, Status], ...]]
"""What a row says of each node: of the node itself, or of its ranks in their order."""


@dataclass(frozen=True, slots=True)
class _Grid:
    """The columns of the matrix: the ids, then each node's name and how wide its marks are. `many`
    is how many nodes there are where their columns don't fit, else 0."""

    ids: int
    nodes: tuple[tuple[str, int], ...]
    many: int = 0


def _grid(report: Report, look: Look, marks: Mapping[str, Marks]) -> _Grid:
    longest = max((len(look.say(row.id)) for row in report.rows), default=0)
    ids = longest + 2 if look.narrow else max(ID_WIDTH, longest + 2)
    nodes = dict.fromkeys(node.name for node in report.observations.topology.nodes)
    # also of whom something is known without their having come
    nodes |= dict.fromkeys(node for of_row in marks.values() for node in of_row)
    names, room = tuple(nodes), look.width - ids - 2
    if len(names) > max(room, 0) + 1:
        return _Grid(ids, (), len(names))
    of_rows = marks.values()
    cells = {
        name: max((_length(_cell(m.get(name, ()), look)) for m in of_rows), default=1)
        for name in names
    }
    # the last name may reach over the measured column, which has no heading
    widths = [max(cells[n], len(look.say(n))) for n in names[:-1]] + [cells[n] for n in names[-1:]]
    if len(names) > 1:
        columns = sum(widths) + 2 * len(widths)
        heading = columns - widths[-1] - 2 + len(look.say(names[-1]))
        measured = 0 if look.narrow else MEASURED_WIDTH
        if max(heading, columns + measured) > room:
            return _Grid(ids, (), len(names))
    return _Grid(ids, tuple(zip(names, widths, strict=True)))


def matrix(report: Report, look: Look) -> Iterator[Line]:
    """One block a stage. All rows when all is well (or -v), else only the odd ones."""
    marks = of_each({row.id: row.by_subject for row in report.rows}, _marks)
    grid = _grid(report, look, marks)
    if not grid.many:
        heading: Line = [(" " * (grid.ids + 2), "")]
        for name, width in grid.nodes:
            heading.append((f"{look.say(name):<{width}}  ", "bold"))
        yield heading
    everything = report.verdict is Verdict.READY or look.verbose
    for stage in dict.fromkeys(row.stage for row in report.rows):
        rows = [row for row in report.rows if row.stage == stage]
        left = [row for row in rows if left_out(report, row)]
        ran = [row for row in rows if looked_at(row)]
        title = (f" {look.say(stage):<9} ", "bold")
        if left and not ran and not everything:
            yield from flow([f"not run: {_reasons(left, look)}"], look, [title], 11)
            continue
        if grid.many and ran:
            yield from _summary({r.id: marks[r.id] for r in (*ran, *left)}, left, title, grid, look)
        elif everything:
            yield [title]
        else:
            passed = sum(passes(report, row) for row in ran)
            of = len({row.id for row in (*ran, *left)})
            yield [title, (f"{passed} of {of} passed" if of else "nothing to look at here", "")]
        quiet = (Status.PASS, Status.SKIP)
        odd = [r for r in rows if r in left or status_here(report, r) not in quiet]
        for row in rows if everything else odd:
            if grid.many:
                yield from _folded_row(report, row, grid, look, marks[row.id])
            else:
                yield _row(report, row, grid, look, marks[row.id])
            yield from _notes(row, look)


def _notes(row: Row, look: Look) -> Iterator[Line]:
    """What a check says below its row. The spaces of a table stay as they are."""
    if look.narrow:
        return
    for note in row.measured.notes[:NOTES]:
        said = look.say(note)
        for part in [said] if len(said) <= look.width - 4 else wrapped(said, look.width - 4):
            yield [(f"    {part}", "dim")]


def status_here(report: Report, row: Row) -> Status:
    """What a check says of those who came. That others did not is said once, by the check that has
    a finding for it."""
    if row.status is not Status.MISSING or any(f.check == row.id for f in report.findings):
        return row.status
    came = [status for status in row.by_subject.values() if status is not Status.MISSING]
    return max(came, key=_weight, default=Status.MISSING)


def left_out(report: Report, row: Row) -> bool:
    """Whether a row is skipped, and that is more than 'nothing to look at here'."""
    return status_here(report, row) is Status.SKIP and any(
        isinstance(o, Missing) and o.cause not in (Cause.NOT_APPLICABLE, Cause.NOT_ARRIVED)
        for o in report.observations.checks.get(row.id, {}).values()
    )


def looked_at(row: Row) -> bool:
    """Whether a check was made anywhere; on other nodes there may be nothing to look at."""
    return row.status not in (Status.SKIP, Status.MISSING) or row.covered > 0


def passes(report: Report, row: Row) -> bool:
    """Whether a check passed wherever there was something to look at."""
    status = status_here(report, row)
    elsewhere = status is Status.SKIP and row.covered > 0 and not left_out(report, row)
    return status is Status.PASS or elsewhere


def _reasons(rows: Iterable[Row], look: Look) -> str:
    """Why rows were not run, each reason once: `needs net.port, env.vars`."""
    told = dict.fromkeys(look.say(row.reason).removeprefix("not started: ") for row in rows)
    needs = [reason.removeprefix("needs ") for reason in told if reason.startswith("needs ")]
    others = [reason for reason in told if not reason.startswith("needs ")]
    return "; ".join([f"needs {', '.join(needs)}"] * bool(needs) + others)


def _marks(by_subject: Mapping[str, Status]) -> Marks:
    by_node: dict[str, list[tuple[int | None, Status]]] = {}
    for key, status in by_subject.items():
        node, rank = place_of(key)
        by_node.setdefault(node, []).append((rank, status))
    return {
        n: tuple(sorted(m, key=lambda mark: mark[0] or 0)) if len(m) > 1 else (m[0],)
        for n, m in by_node.items()
    }


def _length(segments: Line) -> int:
    return sum(len(text) for text, _ in segments)


def _cell(marks: tuple[tuple[int | None, Status], ...], look: Look) -> Line:
    """The marks of one node: one each for up to MARKS_LIMIT ranks, else a count of each kind."""
    if len(marks) > MARKS_LIMIT or (look.ascii and len(marks) > 1):
        kinds = Counter(status for _, status in marks)
        cells = [(f"{look.glyph(s)}{count}", STYLES[s]) for s, count in kinds.items()]
        return [(t + (" " if i + 1 < len(cells) else ""), s) for i, (t, s) in enumerate(cells)]
    return [(look.glyph(s), STYLES[s]) for _, s in marks]


def _row(report: Report, row: Row, grid: _Grid, look: Look, marks: Marks) -> Line:
    line: Line = [(f"  {look.say(row.id):<{grid.ids}}", "")]
    for name, width in grid.nodes:
        cell = _cell(marks.get(name, ()), look)
        line += cell
        line.append((" " * (width + 2 - _length(cell)), ""))
    differ = len({tuple(s for _, s in found) for found in marks.values()}) > 1
    return _measured(line, report, row, look, own_first=differ)


def _measured(line: Line, report: Report, row: Row, look: Look, own_first: bool = False) -> Line:
    """The line with what the row says on its right, and how long it took."""
    time = ""
    if looked_at(row) and not look.narrow:
        time = f"{row.seconds:.1f}s" if row.seconds < 99.95 else f"{row.seconds:.0f}s"
    room = look.width - _length(line) - (0 if look.narrow else 6)
    if room >= TOLD_LEAST:
        text = cut(look.say(_row_text(report, row, own_first)), room, "..." if look.ascii else "…")
        style = "" if looked_at(row) else "dim"
        line.append((text if look.narrow else f"{text:<{room}} {time:>5}", style))
    return line


NOTES = 16
"""Lines that a check may say below its row."""
TOLD_LEAST = 8
"""Columns that are worth saying anything in."""


def _row_text(report: Report, row: Row, own_first: bool = False) -> str:
    """What a row says on its right: what was measured, else why there is nothing. Where the check
    failed, or nodes differ (`own_first`), it is what was found, on whichever of them."""
    if row.reason and (left_out(report, row) or not looked_at(row)):
        return row.reason
    own = next((f.headline for f in report.findings if f.check == row.id), "")
    cause = next((f.check for f in report.findings if row.id in f.folded), "")
    bad = own_first or status_here(report, row) in (Status.FAIL, Status.MISSING)
    follows = f"follows from {cause}" if cause else ""
    told = (own, follows, row.measured.text) if bad else (row.measured.text, own, follows)
    return next(filter(None, told), "") or row.reason


# --- more nodes than columns ---


@dataclass(frozen=True, slots=True)
class _Others:
    """The nodes of one status that is not the usual one: by name, or how many where the names of
    all don't fit into a line."""

    text: str
    short: str
    style: str


def _summary(
    marks: Mapping[str, Marks], left: Iterable[Row], title: Segment, grid: _Grid, look: Look
) -> Iterator[Line]:
    """A stage: what all of it comes to on most nodes, and on the others. Of a check that a node has
    nothing for, nothing is counted."""
    worst: dict[str, Status] = {}
    counts = {row.id for row in left}
    # of most checks it is one object
    told = {(id(by_node), check in counts): by_node for check, by_node in marks.items()}
    for (_, skipped), by_node in told.items():
        for node, found in by_node.items():
            statuses = [s for _, s in found if s is not Status.SKIP or skipped]
            if statuses:
                worst[node] = max([*statuses, worst.get(node, Status.PASS)], key=_weight)
    usual = _usual(worst)
    count = sum(status is usual for status in worst.values())
    line: Line = [(f"{title[0]:<{grid.ids + 2}}", title[1])]
    line.append(_counted(usual, f"{count}/{grid.many}", grid, look))
    of_node: Marks = {node: ((None, status),) for node, status in worst.items()}
    yield from _beside(line, _others(of_node, usual, look), look, look.width)


def _folded_row(report: Report, row: Row, grid: _Grid, look: Look, marks: Marks) -> Iterator[Line]:
    """A check: of how many nodes the same is true, and which are otherwise."""
    worst = {node: max((s for _, s in found), key=_weight) for node, found in marks.items()}
    line: Line = [(f"  {look.say(row.id):<{grid.ids}}", "")]
    if not worst:
        yield _measured(line, report, row, look)
        return
    usual = _usual(worst)
    count = sum(status is usual for status in worst.values())
    of = f"/{grid.many}" if len(worst) < grid.many else ""
    line.append(_counted(usual, f"{count}{of}", grid, look))
    room = look.width - (TOLD_LEAST if look.narrow else MEASURED_WIDTH)
    others = _others(marks, usual, look)
    first, *more = _beside(line, others, look, room)
    yield _measured(first, report, row, look, own_first=bool(others))
    yield from more


def _weight(status: Status) -> int:
    return WEIGHT[status]


def _usual(worst: Mapping[str, Status]) -> Status:
    """What most nodes are; where two kinds are equally many, the better one."""
    counts = Counter(worst.values())
    return min(counts, key=lambda status: (-counts[status], WEIGHT[status]))


def _counted(status: Status, count: str, grid: _Grid, look: Look) -> Segment:
    widest = max(len(look.glyph(s)) for s in Status) + len(f" {grid.many}/{grid.many}")
    return (
        f"{look.glyph(status)} {count}".ljust(widest + (1 if look.narrow else 2)),
        STYLES[status],
    )


def _others(marks: Marks, usual: Status, look: Look) -> list[_Others]:
    """Who is not as most are, the worst first; of a node where only some ranks are, which ones."""
    whole: dict[Status, list[str]] = {}
    partly: dict[Status, list[str]] = {}
    which: dict[Status, list[int]] = {}
    for node, found in marks.items():
        status = max((s for _, s in found), key=_weight)
        if status is usual:
            continue
        with_it = [rank for rank, s in found if s is status]
        if len(with_it) == len(found):
            whole.setdefault(status, []).append(node)
        else:
            partly.setdefault(status, []).append(node)
            which.setdefault(status, []).extend(rank for rank in with_it if rank is not None)
    made = []
    for status in sorted(whole.keys() | partly.keys(), key=_weight, reverse=True):
        nodes, some = whole.get(status, []), partly.get(status, [])
        names = [folded(nodes)] if nodes else []
        names += [f"{folded(some)} {rank_list(which[status], None)}"] if some else []
        glyph = look.glyph(status)
        text = f"{glyph} {look.say(', '.join(names))}"
        made.append(_Others(text, f"{glyph} {len(nodes) + len(some)}", STYLES[status]))
    return made


def _beside(line: Line, others: list[_Others], look: Look, room: int) -> Iterator[Line]:
    """The others behind the count where all of them fit into `room` columns, else below it, each
    kind on a line of its own."""
    behind = [segment for one in others for segment in ((one.text, one.style), ("   ", ""))]
    if _length(line) + _length(behind) - 1 <= room:
        yield line + behind
        return
    yield line
    indent = 4
    for one in others:
        fits = len(one.text) <= look.width - indent
        yield [(" " * indent, ""), (one.text if fits else one.short, one.style)]
