"""The screen while a run goes on: what is folded, and that it fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.engine.plan import CheckProgress, Progress
from preflight.model import Status
from preflight.render.live import live, stage_done
from preflight.render.style import Look

STAGES = ("machine", "meeting", "fabric", "training")


def run_of(each: int, done: int, failed: int = -1) -> Progress:
    """`each` checks in every stage, the first `done` of all done."""
    rows = []
    for number in range(each * len(STAGES)):
        status = None if number >= done else Status.PASS
        status = Status.FAIL if number == failed else status
        limit = 5.0 if number == done else 0.0
        name = f"{STAGES[number // each]}.n{number}"
        rows.append(CheckProgress(name, STAGES[number // each], status, 1.5, limit))
    return Progress(done, len(rows), 12.0, "a.check", 1.5, 5.0, "h1", tuple(rows))


WIDE = Look(width=80)


def text(progress: Progress, rows: int = 24, look: Look = WIDE) -> list[str]:
    return ["".join(part for part, _ in line).rstrip() for line in live(progress, look, rows, 0)]


def test_all_rows_where_there_is_room() -> None:
    assert text(run_of(2, done=3)) == [
        " machine",
        "   machine.n0        ✓    1.5 s",
        "   machine.n1        ✓    1.5 s",
        " meeting",
        "   meeting.n2        ✓    1.5 s",
        "   meeting.n3        ⠋    1.5 s of 5.0 s",
        " fabric",
        "   fabric.n4         ·",
        "   fabric.n5         ·",
        " training",
        "   training.n6       ·",
        "   training.n7       ·",
        "⠋ 3/8   12.0 s   a.check  1.5 s of 5.0 s  waiting for h1",
    ]


def test_what_does_not_fit_is_folded_by_stage() -> None:
    assert text(run_of(4, done=5, failed=2), rows=12) == [
        " machine    ✓ 3  ✗ machine.n2",
        " meeting",
        "   meeting.n4        ✓    1.5 s",
        "   meeting.n5        ⠋    1.5 s of 5.0 s",
        "   meeting.n6        ·",
        "   meeting.n7        ·",
        " fabric     · 4",
        " training   · 4",
        "⠋ 5/16   12.0 s   a.check  1.5 s of 5.0 s  waiting for h1",
    ]
    assert text(run_of(4, done=5), rows=6) == [
        " machine    ✓ 4",
        " meeting    ✓ 1  · 3",
        " fabric     · 4",
        " training   · 4",
        "⠋ 5/16   12.0 s   a.check  1.5 s of 5.0 s  waiting for h1",
    ]


def test_in_ascii() -> None:
    shown = "\n".join(text(run_of(2, done=3), look=Look(width=80, ascii=True)))
    assert shown.isascii()
    assert "| 3/8" in shown


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(4.0, "import torch  4.0 s of 60.0 s"), (24.0, "import torch  24.0 s of 60.0 s: slow file")],
)
def test_a_long_import_is_explained(seconds: float, said: str) -> None:
    (line,) = text(
        Progress(1, 9, 30.0, running_for=seconds, limit=60.0, waiting_for="import torch")
    )
    assert said in line
    assert ("slow file system?" in line) == (seconds > 20)


@given(
    st.integers(0, 12),
    st.integers(0, 48),
    st.integers(1, 60),
    st.integers(20, 120),
    st.text(max_size=200),
)
def test_it_fits_always(each: int, done: int, rows: int, width: int, name: str) -> None:
    progress = run_of(each, done) if each else Progress(0, 0, 0.0, waiting_for=name)
    shown = text(progress, rows, Look(width=width))
    assert 1 <= len(shown) <= rows
    assert all(len(line) < width and not set(line) & set("\x1b\r\n") for line in shown)


def test_a_stage_in_a_log() -> None:
    made = [
        CheckProgress("a", "machine", Status.PASS),
        CheckProgress("b", "machine", Status.WARN),
        CheckProgress("c", "machine", Status.FAIL),
        CheckProgress("d", "machine", Status.UNDECIDED),
        CheckProgress("e", "machine", Status.SKIP),
    ]
    assert stage_done("machine", made) == "machine: 1 check passed, c failed, d undecided, b warned"
