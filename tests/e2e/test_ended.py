"""Some of the runs of `make ended`: every command is ended by every signal at a random moment.
ENDED=2000 for as many of each signal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from faults.world import WorldFault, lacking

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import ended

pytestmark = [
    pytest.mark.root,
    pytest.mark.torch,
    pytest.mark.timeout(0),
    pytest.mark.skipif(bool(why := lacking(WorldFault(""))), reason=why or "-"),
]

COUNT = len(ended.SIGNALS) * int(os.environ.get("ENDED", len(ended.COMMANDS)))


@pytest.mark.at_length
def test_nothing_is_left() -> None:
    made = ended.lanes(seed=3, count=1)
    runs = [run for run, _ in zip(made, range(COUNT), strict=False)]
    made.close()
    assert {run.command for run in runs} == set(ended.COMMANDS)
    assert {run.signal for run in runs} == {number.name for number in ended.SIGNALS}
    assert [(run, found) for run in runs if (found := list(ended.problems(run)))] == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"processes": ("sleep 60",)}, "process left"),
        ({"files": ("/tmp/x",)}, "file left"),
        ({"code": 2}, "exit code"),
        ({"code": -1000}, "had not ended"),
        ({"traceback": 'Traceback …\n  File "/x/preflight/y.py"'}, "traceback"),
        ({"harmed": True}, "job"),
    ],
)
def test_what_counts_as_a_problem(change: dict[str, object], word: str) -> None:
    good = {
        **{"command": "run", "argv": "run", "signal": "SIGINT", "whole_group": False},
        **{"after": 0.1, "took": 0.1, "code": 130, "processes": (), "files": (), "traceback": ""},
    }
    assert list(ended.problems(ended.Ended(**good))) == []  # type: ignore[arg-type]
    (found,) = ended.problems(ended.Ended(**(good | change)))  # type: ignore[arg-type]
    assert found.startswith(word) or word in found


def test_one_call_adds_to_what_others_have_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its commit, and the table is about all of them."""
    monkeypatch.setattr(ended, "COUNTED", tmp_path / "ended.json")
    monkeypatch.setattr(ended, "PAGE", tmp_path / "ended.md")
    assert ended.counted() == []
    killed = ended.Ended("run", "run", "SIGKILL", False, 0.1, 0.2, -9, ("sleep 60",), (), "")
    stopped = ended.Ended("run", "run", "SIGINT", False, 0.3, 1.5, 130, (), (), "")
    early = ended.Ended(
        "gate", "gate", "SIGINT", False, 0.04, 0.1, 1, (), (), "Traceback (most recent call last)"
    )
    for commit, runs in (("aaaaaaa", [killed, stopped, early]), ("bbbbbbb", [killed, killed])):
        batch = ended.Batch(commit, "2026-05-01", "here", 1)
        for run in runs:
            batch.count(run)
        ended.write([*ended.counted(), batch])
    first, second = ended.counted()
    assert (first.commit, first.runs, first.early) == ("aaaaaaa", 3, 0.04)
    assert (second.commit, second.runs, len(second.problems)) == ("bbbbbbb", 2, 2)
    page = (tmp_path / "ended.md").read_text()
    assert "**5 runs. 2 ended by SIGINT, SIGTERM or SIGHUP left 0 processes" in page
    assert "3 ended by SIGKILL left 3 processes" in page
    assert "| bbbbbbb | 2026-05-01 | 2 | 2 | 1 | here |" in page
    assert "| `run` | SIGKILL | 3 | 3 x -9 | 0.2 s | 3 | – | 0 |" in page
    assert page.count("process left: sleep 60 (commit bbbbbbb)") == 2


def test_only_the_signals_that_are_asked_for() -> None:
    made = ended.rounds(1, 0, [ended.signal.SIGKILL])
    asked = [next(made) for _ in ended.COMMANDS]
    assert {number.name for _, number in asked} == {"SIGKILL"}
    assert {variant.command for variant, _ in asked} == set(ended.COMMANDS)
