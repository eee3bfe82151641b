"""The screen while a run goes on: its checks as they end, and what is awaited. Pure.

What does not fit is folded: a stage that is done, or not begun, is one line then. The last line
says how far the run is, what it waits for, for how long by now and how long at most.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.engine.plan import CheckProgress, Progress
from preflight.humanize import duration, plural
from preflight.model import Status
from preflight.render.layout import cut
from preflight.render.style import ID_WIDTH, STYLES, Line, Look

SPINNER, ASCII_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
WAITING, ASCII_WAITING = "·", "."
STAGE_WIDTH = 11
CAME_TO = {Status.FAIL: "failed", Status.UNDECIDED: "undecided", Status.WARN: "warned"}
"""What is said by name of a stage that is done; the rest is counted."""


def live(progress: Progress, look: Look, rows: int, turn: int) -> list[Line]:
    """At most `rows` lines for a screen that is rewritten; `turn` counts its pictures."""
    status: Line = [(f"{_spinner(look, turn)} ", "cyan"), (_status(progress, look), "")]
    stages = by_stage(progress.rows)
    of_stages = [_folded(name, of, look) for name, of in stages.items()]
    whole = [_unfolded(name, of, look, turn) for name, of in stages.items()]
    if sum(map(len, whole)) + 1 > rows:
        for number, of in enumerate(stages.values()):
            if not _under_way(of):
                whole[number] = [of_stages[number]]
    if sum(map(len, whole)) + 1 > rows:
        whole = [[folded] for folded in of_stages]
    lines = [line for stage in whole for line in stage]
    kept = lines[: rows - 1] if rows > 1 else []
    return [_within(line, look) for line in [*kept, status]]


def by_stage(rows: Sequence[CheckProgress]) -> dict[str, list[CheckProgress]]:
    """Stage -> its checks, both in their order."""
    stages: dict[str, list[CheckProgress]] = {}
    for row in rows:
        stages.setdefault(row.stage, []).append(row)
    return stages


def stage_done(name: str, rows: Sequence[CheckProgress]) -> str:
    """What came of a stage, as a line in a log; empty where nothing was looked at."""
    passed = sum(row.status is Status.PASS for row in rows)
    said = [f"{plural(passed, 'check')} passed"] if passed else []
    for status, word in CAME_TO.items():
        if ids := [row.check for row in rows if row.status is status]:
            said.append(f"{', '.join(ids)} {word}")
    return f"{name}: {', '.join(said)}" if said else ""


def failed(row: CheckProgress) -> str:
    """A check that has failed, as a line in a log."""
    return f"{row.check} failed: {row.headline}"


def waited_for(progress: Progress) -> str:
    """What is awaited, for how long by now and how long at most."""
    if progress.check:
        of = f"{duration(progress.running_for)} of {duration(progress.limit)}"
        who = f"  waiting for {progress.waiting_for}" if progress.waiting_for else ""
        return f"{progress.check}  {of}{who}"
    if progress.waiting_for and progress.limit:
        of = f"{duration(progress.running_for)} of {duration(progress.limit)}"
        slow = ": slow file system?" if progress.running_for >= SLOW_IMPORT else ""
        return f"{progress.waiting_for}  {of}{slow}"
    return f"waiting for {progress.waiting_for}" if progress.waiting_for else ""


SLOW_IMPORT = 20.0
"""Seconds that an import takes where files come over a network; 2-8 s from a disk, 10-20 s the
first time after boot."""


def _status(progress: Progress, look: Look) -> str:
    parts = [f"{progress.done}/{progress.total}", duration(progress.seconds)]
    return look.say("   ".join(filter(None, [*parts, waited_for(progress)])))


def _under_way(rows: Sequence[CheckProgress]) -> bool:
    return any(row.status is None for row in rows) and any(
        row.status is not None or row.limit for row in rows
    )


def _folded(name: str, rows: Sequence[CheckProgress], look: Look) -> Line:
    """A stage as one line: how many of its checks have passed, and which have not."""
    line: Line = [(f" {look.say(name):<{STAGE_WIDTH}}", "bold")]
    passed = [row for row in rows if row.status is Status.PASS]
    if passed:
        line.append((f"{look.glyph(Status.PASS)} {len(passed)}  ", STYLES[Status.PASS]))
    for status in CAME_TO:
        if ids := [row.check for row in rows if row.status is status]:
            line.append((f"{look.glyph(status)} {look.say(', '.join(ids))}  ", STYLES[status]))
    if all(row.status is Status.SKIP for row in rows):
        line.append((look.glyph(Status.SKIP), STYLES[Status.SKIP]))
    if waiting := sum(row.status is None for row in rows):
        line.append((f"{_waiting(look)} {waiting}", "dim"))
    return line


def _unfolded(name: str, rows: Sequence[CheckProgress], look: Look, turn: int) -> list[Line]:
    lines: list[Line] = [[(f" {look.say(name)}", "bold")]]
    for row in rows:
        line: Line = [(f"   {look.say(row.check):<{ID_WIDTH}} ", "")]
        if row.status is not None:
            line.append((f"{look.glyph(row.status):<2}", STYLES[row.status]))
            line.append((f" {duration(row.seconds):>7}", "dim"))
            line.append((f"  {look.say(row.headline)}" if row.headline else "", "bold"))
        elif row.limit:
            of = f"{duration(row.seconds):>7} of {duration(row.limit)}"
            line += [(f"{_spinner(look, turn)} ", "cyan"), (f" {of}", "")]
        else:
            line.append((_waiting(look), "dim"))
        lines.append(line)
    return lines


def _spinner(look: Look, turn: int) -> str:
    letters = ASCII_SPINNER if look.ascii else SPINNER
    return letters[turn % len(letters)]


def _waiting(look: Look) -> str:
    return ASCII_WAITING if look.ascii else WAITING


def _within(line: Line, look: Look) -> Line:
    """One line of the terminal: a second one would not be erased."""
    kept: Line = []
    room = look.width - 1
    for text, style in line:
        short = cut(text, room, "..." if look.ascii else "…") if len(text) > room else text
        kept.append((short, style))
        room -= len(short)
        if room <= 0:
            break
    return kept
