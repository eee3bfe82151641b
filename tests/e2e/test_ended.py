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
