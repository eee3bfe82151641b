"""A grid of numbers as a heat map, e.g. what each pair of nodes exchanged: darker where a cell is
less than what most are.

Names are never cut: where they don't fit above a column they are numbered, and where there is no
room for cells the lowest ones are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight.frozen import dataclass
from preflight.model import Grid, Report
from preflight.nodeset import folded
from preflight.render.blocks import by_blocks
from preflight.render.style import Line, Look, flow

MOST, BLOCKS = 32, 24
"""Rows that are drawn; more are put together to so many blocks, and the lowest cells are listed."""
LISTED = 8
TALL = 4
"""Characters of a name above a column, one below the other; longer ones are numbered."""

LEVELS = (
    (0.9, "·", "dim"),
    (0.75, "░", ""),
    (0.5, "▒", "yellow"),
    (0.25, "▓", "red"),
    (0.0, "█", "bold red"),
)
"""From which part of what is usual on a cell looks so."""
SELF, NONE = "\\", " "


def heatmaps(report: Report, look: Look) -> Iterator[Line]:
    """The grids of the report's rows, where -v asks for them; what nodes exchanged also where its
    check has found something: who is slow is not all that a finding says, who is closed is."""
    found = {finding.check for finding in report.findings}
    for row in report.rows:
        grid = row.measured.grid
        if grid is None or look.quiet:
            continue
        if look.verbose or (row.id in found and grid.square and grid.unit):
            yield from _heatmap(row.id, grid, look)


def _heatmap(check_id: str, grid: Grid, look: Look) -> Iterator[Line]:
    if not (grid.cells or grid.rest is not None) or not grid.usual:
        return
    title = f"{check_id} · {grid.title}"
    yield from flow([look.say(part) for part in title.split(" · ")], look, [(" ", "")], 3)
    if max(len(grid.rows), len(grid.columns)) > MOST:
        yield from [] if look.narrow else _by_blocks(grid, look)
        yield from _listed(grid, look)
    else:
        drawn = list(_drawn(grid, grid.by_place(), look, grid.square))
        yield from drawn or _listed(grid, look)
    yield []


def _by_blocks(grid: Grid, look: Look) -> Iterator[Line]:
    of = by_blocks(grid, MOST, BLOCKS)
    rows, columns = tuple(of.rows), tuple(of.columns)
    put_together = Grid(grid.title, rows, columns, (), 1.0, grid.unit)
    yield from _drawn(put_together, of.lowest, look, False)
    told = f"blocks of {of.tall} x {of.wide}, each as its lowest cell"
    yield from flow([told], look, [("   ", "")], 3)


@dataclass(frozen=True, slots=True)
class _Axes:
    """What stands above the columns, what beside the rows, and what tells the one by the other."""

    heads: Sequence[str]
    labels: Sequence[str]
    key: Sequence[str] = ()


def _axes(names: Sequence[str], look: Look) -> _Axes:
    """Whole names beside the rows where they leave every column two blanks."""
    short = _short(names)
    numbered = max(map(len, short)) > TALL
    heads = [str(i) for i in range(1, len(names) + 1)] if numbered else short
    both = [f"{name} {head}" for name, head in zip(names, heads, strict=True)]
    labels = both if numbered else names
    if max(map(len, labels)) + 2 + 2 * len(names) <= look.width:
        return _Axes(heads, labels)
    told = [f"{head} {name}" for name, head in zip(names, heads, strict=True)]
    return _Axes(heads, heads, told if numbered else [folded(names)])


def _short(names: Sequence[str]) -> Sequence[str]:
    """The names without what all of them begin with; a number is not divided."""
    same = names[0]
    while not all(name.startswith(same) for name in names):
        same = same[:-1]
    same = same.rstrip("0123456789")
    rest = [name.removeprefix(same) for name in names]
    return rest if all(rest) else names


def _drawn(
    grid: Grid, cells: Mapping[tuple[int, int], float], look: Look, square: bool
) -> Iterator[Line]:
    """Rows and columns; nothing where they don't fit. `square`: a row is none with itself."""
    above = _axes([look.say(name) for name in grid.columns], look)
    same = grid.rows == grid.columns
    labels = above.labels if same else [look.say(name) for name in grid.rows]
    beside = max(map(len, labels)) + 2
    pitch = min(2, (look.width - beside) // len(grid.columns))
    if pitch < 1:
        return
    tall = max(map(len, above.heads))
    for row in range(tall):
        letters = [head.rjust(tall)[row].ljust(pitch) for head in above.heads]
        yield [(" " * beside, ""), ("".join(letters).rstrip(), "bold")]
    for row, label in enumerate(labels):
        line: Line = [(label.rjust(beside - 1) + " ", "")]
        for column in range(len(grid.columns)):
            itself = square and row == column
            glyph, style = (SELF, "dim") if itself else _cell(cells.get((row, column)), grid, look)
            line.append((glyph.ljust(pitch), style))
        yield line
    told = [f"{glyph} {f'{least:.0%} or more' if least else 'less'}" for least, glyph, _ in LEVELS]
    told = ["tenths of the median; 9: 90% or more"] if look.ascii else told
    yield from flow([*told, "blank: not measured"], look, [("   ", "")], 3)
    if above.key:
        yield from flow(above.key, look, [("   ", "")], 3)


def _cell(value: float | None, grid: Grid, look: Look) -> tuple[str, str]:
    if value is None:
        return NONE, ""
    part = value / grid.usual
    _, glyph, style = next(level for level in LEVELS if part >= level[0])
    return (str(min(int(part * 10), 9)) if look.ascii else glyph), style


def _listed(grid: Grid, look: Look) -> Iterator[Line]:
    """The lowest cells, where there is no room for all."""
    cells = sorted(grid.cells, key=lambda cell: cell.value)
    told = [
        f"{grid.rows[c.row]} with {grid.columns[c.column]} {c.value / grid.usual:.0%}"
        for c in cells[:LISTED]
    ]
    told = told or ["none is lower"]
    rest = len(cells) - LISTED
    told += [f"{rest} more, up to {cells[-1].value / grid.usual:.0%}"] if rest > 0 else []
    yield from flow([look.say(part) for part in told], look, [("   ", "")], 3)
