"""A grid of many rows or columns put together by blocks, each as bad as its lowest cell, so that it
fits on a screen or a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.frozen import dataclass
from preflight.model import Grid
from preflight.nodeset import folded

TOGETHER = 24
"""Characters of the name of a block; of more the first and the last name are given."""

Ratios = Mapping[tuple[int, int], float]
"""(row, column) -> a cell, as a part of what is usual."""


@dataclass(frozen=True, slots=True)
class GridBlocks:
    """A grid by blocks of `tall` rows and `wide` columns. lowest: (row, column) of a block -> its
    lowest cell; listed: of the grid's own cells, both ways where one stands for two; rest: of all
    that are not listed, None where they were not measured."""

    rows: Sequence[str]
    columns: Sequence[str]
    tall: int
    wide: int
    lowest: Ratios
    listed: Ratios
    rest: float | None


def by_blocks(grid: Grid, most: int, blocks: int) -> GridBlocks:
    """Rows, or columns, that are more than `most` make so many blocks; others stay single."""
    tall, wide = (
        -(-len(names) // blocks) if len(names) > most else 1 for names in (grid.rows, grid.columns)
    )
    listed = {(c.row, c.column): c.value / grid.usual for c in grid.cells}
    if grid.square:
        listed = {(c, r): value for (r, c), value in listed.items()} | listed
    rest = None if grid.rest is None else grid.rest / grid.usual
    rows, columns = (
        [_together(names[at : at + step]) for at in range(0, len(names), step)]
        for names, step in ((grid.rows, tall), (grid.columns, wide))
    )
    lowest: dict[tuple[int, int], float] = {}
    if rest is not None:
        lowest = {(r, c): rest for r in range(len(rows)) for c in range(len(columns))}
    for (row, column), ratio in listed.items():
        block = row // tall, column // wide
        lowest[block] = min(lowest.get(block, ratio), ratio)
    return GridBlocks(rows, columns, tall, wide, lowest, listed, rest)


def _together(names: Sequence[str]) -> str:
    """The names of a block, short."""
    told = folded(names)
    return told if len(told) <= TOGETHER else f"{names[0]} … {names[-1]}"
