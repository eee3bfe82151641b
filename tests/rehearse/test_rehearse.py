"""`preflight rehearse` with real training scripts under torchrun: the fault of each is named with
its rank and line, in time; and where nothing is wrong, nothing is found."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from rehearse.catalogue import AT_LENGTH, FAULTS, HEALTHY, SCRIPTS, Row, missing, places
from rehearse.judged import late, wrong
from rehearse.running import ARGUMENTS_ON_STDIN, Told, rehearse
from support import command

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

CROWDED = 4.0
"""Processes that want a CPU for each of them, from which on no rehearsal starts before its turn."""


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2)


_begun: dict[str, Future[Told]] = {}


def _begin(row: Row) -> Future[Told]:
    if row.name not in _begun:
        _begun[row.name] = _pool().submit(rehearse, row)
    return _begun[row.name]


@pytest.fixture
def told(row: Row, following: pytest.Item | None) -> Told:
    """What came of the row. The next test's rehearsal starts meanwhile: most of the time of one is
    waiting. On a machine that has no CPU left it would only keep this one from its own."""
    begun = _begin(row)
    spec = getattr(following, "callspec", None)
    coming = spec.params.get("row") if spec is not None else None
    free = os.getloadavg()[0] < CROWDED * (os.cpu_count() or 1)
    if isinstance(coming, Row) and not missing(coming) and free:
        _begin(coming)
    return begun.result()


def rows(*table: Row) -> pytest.MarkDecorator:
    short = [row for row in table if row.name not in AT_LENGTH]
    return pytest.mark.parametrize(
        "row",
        [
            pytest.param(
                row,
                id=row.name,
                marks=pytest.mark.skipif(missing(row), reason=f"needs {row.needs}"),
            )
            for row in short
        ],
    )


@rows(*FAULTS)
def test_the_fault_is_named(row: Row, told: Told) -> None:
    assert [*wrong(row, told), *late(row, told)] == [], told.shown()
    assert not told.left, f"left behind: {told.left}"


@rows(*HEALTHY)
def test_where_nothing_is_wrong_nothing_is_found(row: Row, told: Told) -> None:
    assert told.code == 0, told.shown()
    assert told.report["verdict"] == "ready", told.shown()
    found = told.findings("fail", "warn", "undecided", "missing")
    assert not [f for f in found if f["code"] not in row.may_warn], told.shown()
    assert told.command["exit"] == 0, told.shown()
    assert told.command["why"] == "ended", told.shown()
    assert not told.left, f"left behind: {told.left}"


def row_of(script: str) -> Row:
    return next(row for row in (*FAULTS, *HEALTHY) if row.name == script)


def test_the_commands_streams_are_its_own() -> None:
    told = _begin(row_of("chatty")).result()
    lines = (f"step {step} line {line} {'x' * 60}\n" for step in range(40) for line in range(500))
    text = "".join(lines).encode() + b"\xff\xfe\x00 end"
    assert told.out[: len(text)] == text
    for step in range(40):
        assert f"\rstep {step}" + " " * 2000 in told.err


def test_it_reads_our_standard_input() -> None:
    told = _begin(row_of("no_torch")).result()
    assert told.out.startswith(b"1 " + ARGUMENTS_ON_STDIN + b"\n")
    assert "a warning of its own\n" in told.err


def test_what_is_set_for_it_is_shown() -> None:
    told = _begin(row_of("no_torch")).result()
    assert "PREFLIGHT_WATCHED=" in told.err
    assert "PYTHONPATH=" in told.err
    assert {"set.PREFLIGHT_WATCHED", "set.PYTHONPATH"} <= set(told.report["settings"])


def test_its_own_status_and_hook_are_kept() -> None:
    assert _begin(row_of("failing_tool")).result().command["exit"] == 1
    assert "own hook: FloatingPointError" in _begin(row_of("raised_with_own_hook")).result().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_it(number: signal.Signals, tmp_path: Path) -> None:
    torchrun = Path(sys.executable).with_name("torchrun")
    script = SCRIPTS / "waits_for_signal.py"
    with (tmp_path / "out").open("wb") as out:
        running = command.start(
            *("rehearse", "-o", f"json={tmp_path}/report.json", "--"),
            *(torchrun, "--standalone", "--nproc-per-node=2", script),
            stdout=out,
        )
        trains = _trains(tmp_path / "out")
        os.kill(running.process.pid, number)
        done = running.end(40)
    assert trains, done.err
    # torchrun passes on what it was sent, and is sent nothing else before it has ended
    said = (tmp_path / "out").read_text()
    assert said.startswith(f"training\nsaved on {number.name}\n"), done.err
    assert done.code == 128 + number
    assert not done.left
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["interrupted"] == number.name
    assert not [f for f in report["findings"] if f["status"] == "fail"]


def _trains(out: Path) -> bool:
    """Once it has said so."""
    until = time.monotonic() + 60
    while not (said := "training" in out.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    return said


def test_the_table_is_in_order() -> None:
    table = (*FAULTS, *HEALTHY)
    names = [row.name for row in table]
    assert len(names) == len(set(names))
    assert set(names) >= AT_LENGTH
    others = {
        "planted",
        "elsewhere",
        "augment",
        "waits_for_signal",
        "ways",
        "starts_ranks",
        "step_costs",
    }
    assert {row.script for row in table} | others == {path.stem for path in SCRIPTS.glob("*.py")}
    assert all(places(row) for row in FAULTS if row.line)
