"""Where what is drawn in an HTML report stands: maps, lanes, curves and machines, as numbers and
paths. The templates make SVG of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from preflight.frozen import dataclass
from preflight.humanize import duration, rank_list, size
from preflight.model import (
    DRAWN_NODES,
    Curves,
    Device,
    Doing,
    Finding,
    Grid,
    Kind,
    Lanes,
    Report,
    Span,
    Status,
    Subject,
    Swimlane,
    place_of,
)
from preflight.render.blocks import Ratios, by_blocks

LEVELS = (0.9, 0.75, 0.5, 0.25, 0.0)
"""From which part of what is usual on a cell has which colour."""
MOST = 128
"""Rows of a map; more are drawn by blocks."""
BLOCKS, OPENED = 64, 24
"""Blocks along one side of such a map, and how many of the lowest can be opened."""
RINGED, LISTED = 40, 12
"""The lowest cells: so many get a ring, where they are no more, and so many are listed."""
SIDE = 480
"""Of a map, in its own units."""
LANES = 64
"""Lanes of a picture."""
NAMED = 24
"""Lanes, or rows of a map, that each have room for a name."""
MACHINES = 12
"""Nodes that are drawn."""


# --- maps ---


@dataclass(frozen=True, slots=True)
class DrawnMap:
    """A grid of numbers. `paths`: level -> SVG path of its cells; `rings`: centres of the lowest
    cells; `rows` and `columns`: (place, name) of those that are named; `low`: the lowest in words;
    `step`: rows and columns per block, 1 where nothing is put together; `opened`: (name, map);
    `rates`: the cells are parts of what is usual, and not only yes or no."""

    title: str
    width: float
    height: float
    pitch: float
    count: tuple[int, int]
    paths: Mapping[int, str]
    rings: Sequence[tuple[float, float]]
    rows: Sequence[tuple[float, str]]
    columns: Sequence[tuple[float, str]]
    low: Sequence[str]
    more: int
    told: str
    step: int = 1
    opened: Sequence[tuple[str, DrawnMap]] = ()
    rates: bool = True


def map_of(grid: Grid) -> DrawnMap | None:
    """The picture of a grid; of more than MOST rows one of blocks, each as bad as its worst."""
    if not grid.usual or not (grid.cells or grid.rest is not None):
        return None
    if max(len(grid.rows), len(grid.columns)) <= MOST:
        ratios = {place: value / grid.usual for place, value in grid.by_place().items()}
        made = _map(grid.title, grid.rows, grid.columns, ratios, grid.square)
    else:
        made = _by_blocks(grid)
    if grid.unit:
        return made
    # the words have a part of what is usual behind them, which says nothing of a no
    return replace(made, rates=False, low=[text.rpartition(":")[0] for text in made.low])


def _by_blocks(grid: Grid) -> DrawnMap:
    of = by_blocks(grid, MOST, BLOCKS)
    opened = []
    low = sorted((value, block) for block, value in of.lowest.items() if value < LEVELS[0])
    for _, (r, c) in low[:OPENED]:
        rows = range(r * of.tall, min((r + 1) * of.tall, len(grid.rows)))
        columns = range(c * of.wide, min((c + 1) * of.wide, len(grid.columns)))
        inside = {
            (row - rows.start, column - columns.start): value
            for row in rows
            for column in columns
            if (value := of.listed.get((row, column), of.rest)) is not None
            and not (grid.square and row == column)
        }
        names = [grid.rows[row] for row in rows], [grid.columns[column] for column in columns]
        name = f"{of.rows[r]} to {of.columns[c]}"
        opened.append((name, _map(name, *names, inside, False)))
    title = f"{grid.title} · by blocks of {of.tall} x {of.wide}, each as its lowest cell"
    made = _map(title, of.rows, of.columns, of.lowest, False, max(of.tall, of.wide))
    lowest = sorted((v, place) for place, v in of.listed.items() if v < LEVELS[0])
    told = [f"{grid.rows[r]} to {grid.columns[c]}: {_share(v)}" for v, (r, c) in lowest[:LISTED]]
    return replace(made, low=told, more=max(0, len(lowest) - LISTED), opened=opened)


def _map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    ratios: Ratios,
    square: bool,
    step: int = 1,
) -> DrawnMap:
    pitch = max(3.0, min(22.0, SIDE / max(len(rows), len(columns), 1)))
    lowest = sorted((v, place) for place, v in ratios.items() if v < LEVELS[0])
    if square:  # both directions are one where they are alike
        lowest = [(v, (r, c)) for v, (r, c) in lowest if r < c or ratios.get((c, r), v) != v]
    bad = [place for v, place in sorted((v, p) for p, v in ratios.items()) if v < LEVELS[1]]
    rings = bad if len(bad) <= RINGED and pitch < 12 else []
    return DrawnMap(
        title=title,
        width=len(columns) * pitch,
        height=len(rows) * pitch,
        pitch=pitch,
        count=(len(rows), len(columns)),
        paths=_paths(len(rows), len(columns), ratios, pitch),
        rings=[((c + 0.5) * pitch, (r + 0.5) * pitch) for r, c in rings],
        rows=_ticks(rows, pitch),
        columns=_ticks(columns, pitch),
        low=[f"{rows[r]} to {columns[c]}: {_share(v)}" for v, (r, c) in lowest[:LISTED]],
        more=max(0, len(lowest) - LISTED),
        told=f"{len(rows)} rows, {len(columns)} columns, {len(lowest)} cells below "
        f"{LEVELS[0]:.0%} of what is usual",
        step=step,
    )


def _share(ratio: float) -> str:
    """A part of what is usual; a little is not nothing."""
    return "under 1%" if 0 < ratio < 0.01 else f"{ratio:.0%}"


def _ticks(names: Sequence[str], pitch: float) -> list[tuple[float, str]]:
    every = max(1, -(-len(names) // NAMED))
    return [((i + 0.5) * pitch, name) for i, name in enumerate(names) if i % every == 0]


def _level(ratio: float) -> int:
    return next(i for i, least in enumerate(LEVELS) if ratio >= least)


def _paths(rows: int, columns: int, ratios: Ratios, pitch: float) -> dict[int, str]:
    """Cells of one level that are side by side are one rectangle: a healthy map is short."""
    found: dict[int, list[str]] = {}
    for row in range(rows):
        start, level = 0, -1
        for column in range(columns + 1):
            ratio = ratios.get((row, column)) if column < columns else None
            now = -1 if ratio is None else _level(ratio)
            if now == level:
                continue
            if level >= 0:
                width = (column - start) * pitch
                at = f"M{start * pitch:g} {row * pitch:g}h{width:g}v{pitch:g}h-{width:g}z"
                found.setdefault(level, []).append(at)
            start, level = column, now
    return {level: "".join(parts) for level, parts in sorted(found.items())}


# --- lanes ---


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """A lane: its name, (x, width, kind, text) of each span in thousandths of the axis, what is
    said at its end, and whether a finding is about it."""

    name: str
    spans: Sequence[tuple[float, float, str, str]]
    said: str
    odd: bool


@dataclass(frozen=True, slots=True)
class LanesDrawn:
    """Lanes on one axis. `left`: how many are not drawn; `dense`: there is no room for all names;
    `kinds`: what the legend has to explain; `end`: of the axis, in words; `last`: what is said of
    each lane."""

    title: str
    end: str
    lanes: Sequence[DrawnLane]
    left: int
    dense: bool
    kinds: Sequence[tuple[str, str]]
    last: str


LEGEND = {
    Doing.ABSENT: "not there",
    Doing.WORK: "works",
    Doing.DATA: "waits for data",
    Doing.WAIT: "waits for others, or in a collective",
    Doing.STUCK: "is not where the others are",
}


def lanes_of(lanes: Lanes, accused: Sequence[Subject]) -> LanesDrawn | None:
    """The picture of lanes; of many, those that a finding is about and those that are the most
    unlike the others, in their own order."""
    end = max((span.end for lane in lanes.lanes for span in lane.spans), default=0.0)
    if end <= 0:
        return None
    odd = [is_about(lane.key, accused) for lane in lanes.lanes]
    order = sorted(range(len(odd)), key=lambda i: (not odd[i], -_weight(lanes.lanes[i]), i))
    chosen = sorted(order[:LANES])
    drawn = [_drawn(lanes.lanes[i], end, odd[i], lanes.unit) for i in chosen]
    kinds = {span.doing for i in chosen for span in lanes.lanes[i].spans if span.end > span.start}
    number = f"{end:.3g}" if lanes.unit.startswith("s") else f"{end:g}"
    return LanesDrawn(
        title=lanes.title,
        end=f"{number} {lanes.unit}",
        lanes=drawn,
        left=len(odd) - len(chosen),
        dense=len(chosen) > NAMED,
        kinds=[(str(kind), told) for kind, told in LEGEND.items() if kind in kinds],
        last="Longest" if lanes.unit[:1] == "s" else "At the end",
    )


def _weight(lane: Swimlane) -> float:
    late = (Doing.ABSENT, Doing.STUCK, Doing.DATA)
    return sum(span.end - span.start for span in lane.spans if span.doing in late)


def _drawn(lane: Swimlane, end: float, odd: bool, unit: str) -> DrawnLane:
    spans = [
        (1000 * s.start / end, max(1000 * (s.end - s.start) / end, 2.0), str(s.doing), s.text)
        for s in lane.spans
        if s.end > s.start
    ]
    node, rank = place_of(lane.key)
    name = node if rank is None else f"{node} rank {rank}"
    return DrawnLane(name, spans, _said(lane, unit), odd)


def _said(lane: Swimlane, unit: str) -> str:
    """Where somebody stands; on an axis of time what took longest there."""
    if unit[:1] != "s":
        return lane.spans[-1].text if lane.spans else ""
    longest = max(lane.spans, key=lambda s: s.end - s.start, default=None)
    if longest is None or longest.doing is Doing.ABSENT or unit != "s":
        return longest.text if longest else ""
    return f"{longest.text} {duration(longest.end - longest.start)}"


def is_about(key: str, accused: Sequence[Subject]) -> bool:
    """Whether a node or rank is one of those that findings are about."""
    node, rank = place_of(key)
    return any(
        subject.node == node and (rank is None or not subject.ranks or rank in subject.ranks)
        for subject in accused
    )


def accused_by(findings: Sequence[Finding]) -> list[Subject]:
    """Whom the findings are about that name some of the job, not all of it."""
    return [s for finding in findings for s in finding.subjects if s.kind is not Kind.JOB]


BRING_UP = ("meeting", "training")
"""Stages that bring the job up, in their order."""


def bring_up(report: Report) -> Lanes | None:
    """How the job came up: when each node came, then what each rank did in the checks of the
    meeting and of the training, one after the other as they were made. A check begins when the one
    before has ended everywhere; within it each rank has its own time and marks. Of more nodes than
    a report draws anything of, the time that each of 100,000 ranks took would be made for the few
    that have room."""
    nodes = report.observations.topology.nodes
    if len(nodes) > DRAWN_NODES:
        return None
    keys = [f"{node.name}/{rank}" for node in nodes for rank in node.ranks]
    if len(keys) < 2:
        return None
    spans: dict[str, list[Span]] = {key: [] for key in keys}
    at = 0.0
    rows = [row for stage in BRING_UP for row in report.rows if row.stage == stage]
    for came in (row.measured.lanes for row in rows):
        if came is None or came.unit != "s" or at:
            continue
        by_key = {lane.key: lane.spans for lane in came.lanes}
        for key in keys:
            spans[key] += by_key.get(key, by_key.get(place_of(key)[0], ()))
        at = max((s.end for of in spans.values() for s in of), default=0.0)
    for row in (row for row in rows if row.measured.lanes is None):
        seen = report.observations.checks.get(row.id, {})
        longest = 0.0
        for key in keys:
            observation = seen.get(key) or seen.get(place_of(key)[0])
            if observation is None or observation.seconds <= 0:
                continue
            longest = max(longest, observation.seconds)
            marks = [(m.at, f"{row.id}: {m.name}") for m in observation.marks[-MARKS:]]
            starts = marks if marks and marks[0][0] <= 0 else [(0.0, row.id), *marks]
            ends = [start for start, _ in starts[1:]] + [observation.seconds]
            for (start, text), end in zip(starts, ends, strict=True):
                if end > start:
                    spans[key].append(Span(at + start, at + end, Doing.WORK, text))
        at += longest
    if not any(spans.values()):
        return None
    if len(keys) > LANES:  # of each node the rank that took longest
        taken = {key: sum(s.end - s.start for s in of) for key, of in spans.items()}
        ranks = [[f"{node.name}/{rank}" for rank in node.ranks] for node in nodes if node.ranks]
        keys = [max(of, key=taken.__getitem__) for of in ranks]
    lanes = tuple(Swimlane(key, tuple(spans[key])) for key in keys)
    return Lanes("how each rank came up: meeting, store, process group", "s", lanes)


MARKS = 12


# --- curves ---


@dataclass(frozen=True, slots=True)
class CurvesDrawn:
    title: str
    top: str
    end: str
    lines: Sequence[tuple[str, str, bool]]
    left: int


def curves_of(curves: Curves, accused: Sequence[Subject]) -> CurvesDrawn | None:
    """Lines in a field of 1000 x 1000: (name, points, whether a finding is about it)."""
    points = [point for curve in curves.curves for point in curve.points]
    right, top = max((x for x, _ in points), default=0), max((y for _, y in points), default=0)
    if len(points) < 2 or right <= 0 or top <= 0:
        return None
    lines = []
    for curve in curves.curves[:LANES]:
        at = [f"{1000 * x / right:.0f},{1000 - 1000 * y / top:.0f}" for x, y in curve.points]
        lines.append((curve.key, " ".join(at), is_about(curve.key, accused)))
    high = size(int(top)) if curves.unit == "bytes" else f"{top:g} {curves.unit}"
    end = f"{right:.3g} {curves.across}"
    return CurvesDrawn(curves.title, high, end, lines, len(curves.curves) - len(lines))


# --- machines ---


@dataclass(frozen=True, slots=True)
class DrawnDevice:
    """A device: where it is drawn, its name, what it is, and whether it is broken."""

    x: float
    y: float
    name: str
    text: str
    kind: str
    broken: bool


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node. `wires`: SVG paths of links between GPUs; `places`: (y, name) of what devices share;
    `why`: what a finding says of the node itself."""

    name: str
    ranks: str
    broken: bool
    boxes: Sequence[DrawnDevice]
    wires: Sequence[str]
    places: Sequence[tuple[float, str]]
    width: float
    height: float
    why: str


COLUMN, LINE, PER_LINE = 58.0, 40.0, 4


def machines(report: Report) -> tuple[list[DrawnNode], int]:
    """The nodes as they were seen, those with something broken first, and how many are left."""
    serious = [f for f in report.findings if f.status in (Status.FAIL, Status.MISSING)]
    whole = {
        s.node: finding.headline
        for finding in reversed(serious)
        for s in finding.subjects
        if s.kind not in (Kind.GPU, Kind.NIC, Kind.LINK, Kind.JOB) and s.node
    }
    broken = {
        (s.node, s.name if s.port is None else f"{s.name}:{s.port}")
        for finding in serious
        for s in finding.subjects
        if s.kind in (Kind.GPU, Kind.NIC)
    }
    parts: dict[str, list[Device]] = {}
    for row in report.rows:
        for part in row.measured.parts:
            parts.setdefault(part.node, []).append(part)
    ranks = {node.name: node.ranks for node in report.observations.topology.nodes}
    names = [*ranks, *(name for name in {**dict.fromkeys(whole), **parts} if name not in ranks)]
    bad = {node for node, _ in broken} | {*whole}
    bad |= {part.node for of in parts.values() for part in of if part.broken}
    order = sorted(names, key=lambda name: name not in bad)
    wires = _wires(report)
    made = [
        _machine(name, ranks.get(name, ()), parts.get(name, []), broken, wires, whole.get(name, ""))
        for name in order[:MACHINES]
    ]
    return made, len(order) - len(made)


def _wires(report: Report) -> dict[str, list[tuple[str, str]]]:
    """Pairs of GPUs that are joined by lanes, by the name of the row's device."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in report.rows:
        grid = row.measured.grid
        if grid is None or grid.unit != "lanes":
            continue
        for cell in grid.cells:
            if cell.value > 0:
                node, _, number = grid.rows[cell.row].rpartition(" GPU ")
                pair = f"GPU {number}", grid.columns[cell.column]
                if pair[0] < pair[1]:
                    found.setdefault(node, []).append(pair)
    return found


def _machine(
    name: str,
    ranks: Sequence[int],
    parts: Sequence[Device],
    broken: set[tuple[str, str]],
    wires: Mapping[str, Sequence[tuple[str, str]]],
    why: str,
) -> DrawnNode:
    boxes: list[DrawnDevice] = []
    places: list[tuple[float, str]] = []
    y = 0.0
    for (kind, place), group in _groups(parts):
        if place:
            places.append((y + 11, place))
            y += 16
        for index, part in enumerate(group):
            at = (index % PER_LINE) * COLUMN, y + (index // PER_LINE) * LINE
            bad = part.broken or (name, part.name) in broken
            boxes.append(DrawnDevice(*at, part.name, part.text, kind, bad))
        y += -(-len(group) // PER_LINE) * LINE
    middle = {box.name: (box.x + 26, box.y + 16) for box in boxes}
    paths = [
        f"M{middle[a][0]:g} {middle[a][1]:g}L{middle[b][0]:g} {middle[b][1]:g}"
        for a, b in wires.get(name, ())
        if a in middle and b in middle
    ]
    return DrawnNode(
        name,
        rank_list(ranks, None) if ranks else "",
        bool(why) or any(box.broken for box in boxes),
        boxes,
        paths,
        places,
        PER_LINE * COLUMN,
        max(y, 1.0),
        why,
    )


def _groups(parts: Sequence[Device]) -> Iterator[tuple[tuple[str, str], list[Device]]]:
    found: dict[tuple[str, str], list[Device]] = {}
    for part in parts:
        found.setdefault((str(part.kind), part.place), []).append(part)
    yield from found.items()
