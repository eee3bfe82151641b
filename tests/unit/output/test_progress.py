"""What is shown while a run goes on: on a terminal, in a pipe, in CI."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace

import pyte
import pytest
from support.terminal import PREFLIGHT, in_pipe, on_terminal

from preflight.engine.plan import CheckProgress, Progress
from preflight.model import Status
from preflight.output import progress as shown_progress

AT_WORK = Progress(
    done=12,
    total=17,
    seconds=30.4,
    check="world.nccl",
    running_for=3.1,
    limit=20.0,
    waiting_for='gpu-b07/6 (last mark: "ncclCommInitRank")',
)

WATCHING = """
import os, sys, time
from preflight.engine.plan import CheckProgress, Progress
from preflight.model import Status
from preflight.output import progress as shown
shown.PICTURE = 0.0
line = shown.ProgressDisplay(quiet={quiet}, environ=os.environ, every={every})
for step in range(5):
    who = 'n1/{rank} (last mark: "a\\x1b[2Jb")'
    rows = tuple(
        CheckProgress("net.n%d" % n, "machine", Status.PASS if n < step else None, 1.0, 0.0)
        for n in range({rows})
    )
    line(lambda: Progress(step, 5, step, "world.nccl", step / 2, 20.0, who, rows))
    time.sleep(0.02)
if {clear}:
    line.clear()
    line.clear()
    print("the report")
"""


def watching(
    rank: str = "6", every: float = 60.0, quiet: bool = False, rows: int = 0, clear: bool = True
) -> tuple[str, ...]:
    script = WATCHING.format(rank=rank, every=every, quiet=quiet, rows=rows, clear=clear)
    return (sys.executable, "-c", script)


@pytest.mark.parametrize("rows", [0, 3, 12])
@pytest.mark.parametrize("columns", [98, 40])
@pytest.mark.parametrize("rank", ["6", "6" * 200], ids=["short", "long"])
def test_it_is_rewritten_in_place_and_cleared(rank: str, columns: int, rows: int) -> None:
    shown = on_terminal(watching(rank, rows=rows), columns)
    assert shown.code == 0
    assert shown.lines == ["the report"]
    pictures = shown.raw.split("\r")
    assert "0/5" in shown.raw
    for picture in shown.raw.replace("\r\n", "\n").split("\r")[1:]:
        lines = re.sub(r"\x1b\[\d*[A-Za-z]", "", picture).split("\n")
        assert all(len(line) < columns for line in lines)
    assert len(pictures) > 6
    assert "\x1b[2J" not in shown.raw  # a mark is a stranger's text


def test_the_rows_fill_in() -> None:
    shown = on_terminal(watching(rows=6, clear=False))
    assert [line.split() for line in shown.lines[:-1]] == [
        ["machine"],
        *([f"net.n{n}", "✓", "1.0", "s"] for n in range(4)),
        *([f"net.n{n}", "·"] for n in (4, 5)),
    ]
    assert "4/5   4.0 s   world.nccl  2.0 s of 20.0 s  waiting for n1/6" in shown.lines[-1]


def test_a_picture_is_written_in_one_piece_and_never_scrolls() -> None:
    """As many lines as the terminal has, less one."""
    text = on_terminal(watching(rows=300, clear=False)).raw
    screen = pyte.HistoryScreen(98, 200, history=1000)
    pyte.Stream(screen).feed(text)
    assert not screen.history.top


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"CI": "true"}, {"CI": "1"}], ids=str)
def test_nothing_is_rewritten_where_that_is_no_good(env: dict[str, str]) -> None:
    assert on_terminal(watching(rows=3), env=env).raw == "the report\r\n"


def test_ci_that_is_none() -> None:
    assert "\x1b[J" in on_terminal(watching(), env={"CI": "false"}).raw


def test_quiet_shows_no_progress() -> None:
    assert on_terminal(watching(quiet=True)).raw == "the report\r\n"
    assert in_pipe(watching(quiet=True, every=0.0)).stderr == b""


def test_without_a_terminal_there_is_a_heartbeat() -> None:
    ended = in_pipe(watching(every=0.0))
    beats = ended.stderr.decode().splitlines()
    assert len(beats) == 5
    mark = 'last mark: "a\\x1b[2Jb"'
    assert beats[3] == f" preflight: 3 s, 3/5 done, waiting for n1/6 ({mark}) in world.nccl"
    assert ended.stdout == b"the report\n"


def told(capsys: pytest.CaptureFixture[str], *steps: Progress, ci: str = "") -> list[str]:
    line = shown_progress.ProgressDisplay(quiet=False, environ={"CI": ci}, every=0.0)
    for step in steps:
        line(lambda: step)  # noqa: B023  called at once
    return capsys.readouterr().err.splitlines()


def rows(*statuses: Status | None) -> tuple[CheckProgress, ...]:
    stages = ("machine", "machine", "fabric")
    return tuple(
        CheckProgress(f"{stage}.{number}", stage, status)
        for number, (stage, status) in enumerate(zip(stages, statuses, strict=True))
    )


DONE = replace(AT_WORK, rows=rows(Status.PASS, Status.FAIL, None))
ALL_DONE = replace(AT_WORK, seconds=40.0, rows=rows(Status.PASS, Status.FAIL, Status.SKIP))
BEAT = (
    ' preflight: 30 s, 12/17 done, waiting for gpu-b07/6 (last mark: "ncclCommInitRank") '
    "in world.nccl"
)
ALL_DONE_BEAT = BEAT.replace("30 s", "40 s")


def test_without_a_terminal_each_stage_that_is_done_is_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told(capsys, AT_WORK, DONE, DONE, ALL_DONE) == [
        BEAT,
        " preflight: 30 s, machine: 1 check passed, machine.1 failed",
        BEAT,
        ALL_DONE_BEAT,  # nothing to say of the fabric
    ]


def test_without_a_terminal_a_check_that_fails_is_a_line_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever has mistyped MASTER_ADDR need not wait for the import of torch."""
    port = CheckProgress("net.port", "machine", Status.FAIL, headline="MASTER_PORT 29500 is taken")
    step = replace(AT_WORK, rows=(port, CheckProgress("net.name", "machine")))
    said = " preflight: 30 s, net.port failed: MASTER_PORT 29500 is taken"
    assert told(capsys, step, step) == [said, BEAT]
    assert told(capsys, step, ci="true") == [said]
    assert told(capsys, replace(step, leads=False)) == [BEAT]


def test_of_several_agents_one_leads_and_one_a_node_speaks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    guest = replace(DONE, leads=False)
    assert told(capsys, guest) == [BEAT]
    assert told(capsys, replace(guest, speaks=False)) == []


def test_ci_has_its_heartbeat_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, DONE, ci="true") == [BEAT]


def test_the_heartbeat_keeps_its_distance(capsys: pytest.CaptureFixture[str]) -> None:
    line = shown_progress.ProgressDisplay(quiet=False, environ={}, every=0.2)
    until = time.monotonic() + 0.7
    while time.monotonic() < until:
        line(lambda: AT_WORK)
        time.sleep(0.01)
    line.clear()
    said = capsys.readouterr()
    assert said.out == ""
    # at 0.2, 0.4 and 0.6 s; fewer when this machine is busy, never more
    assert 1 <= len(said.err.splitlines()) <= 3
    assert said.err.splitlines()[0] == BEAT


def test_the_heartbeat_is_ten_seconds() -> None:
    assert shown_progress.HEARTBEAT == 10.0


def test_a_quick_run_in_a_pipe_says_nothing_but_its_report() -> None:
    """Unless it takes longer than most do."""
    ended = in_pipe((*PREFLIGHT, "run", "--level", "quick", "--nproc", "1"))
    said = ended.stderr.decode().splitlines()
    assert all(re.match(r" preflight: \d+ s, ", line) for line in said), said
