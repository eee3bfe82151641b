"""What the injected files tell of optimizers is hostile."""

from __future__ import annotations

import pytest

from preflight.domains.job.frame import Frame
from preflight.domains.job.optimized import Held, Hooks, Optimized, Scheduler
from preflight.rehearsal.optimizers import MOST, NAMES, optimized_of

LINE = ["train.py", 3, "main", True]
HERE = Frame("train.py", 3, "main", own=True)
ENTRY = ["head.weight", "[2] float32", LINE, 0, 16]
TOLD = {
    "steps": 40,
    "hidden": [ENTRY, ["x", "[2]", None, 3, 2], ["x"], 7],
    "unheld": [ENTRY],
    "ghosts": "x",
    "loose": {
        "names": ["scale"],
        "shapes": ["[] float32"],
        "where": "criterion",
        "frame": LINE,
        "checks": [[0, "1", "1"], [1, "-", "-"], [2]],
    },
    "hooks": [[0, 1], [1, 2], [-1, 2], ["x", 1]],
    "most": [2, "forward hook", "body", LINE],
    "schedulers": [[LINE, None, 4, 20], [LINE, None, -1, 20], 3],
}


def test_they_are_read() -> None:
    found = optimized_of({"optimized": TOLD})
    held = Held("head.weight", "[2] float32", HERE, 0, 16)
    assert (found.steps, found.hidden, found.unheld, found.ghosts) == (40, (held,), (held,), ())
    assert found.loose is not None
    assert (found.loose.names, found.loose.where) == (("scale",), "criterion")
    assert [(look.step, look.sums) for look in found.loose.checks] == [(0, (1.0,)), (1, (None,))]
    assert found.hooks == Hooks(((0, 1), (1, 2)), 2, "forward hook", "body", HERE)
    assert found.schedulers == (Scheduler(HERE, None, 4, 20),)


@pytest.mark.parametrize(
    "told",
    [
        None,
        3,
        [],
        {"hidden": 3, "loose": [], "hooks": {}, "most": "x", "schedulers": [[]]},
        {"loose": {"names": ["a", "b"], "shapes": ["[]"]}, "steps": -1},
        {"hidden": [["x", "[2]", None, 0, MOST]], "hooks": [[0, MOST]], "most": [MOST, "", "", 0]},
    ],
)
def test_whatever_else_is_told_is_nothing(told: object) -> None:
    assert optimized_of({"optimized": told}) == Optimized()


def test_it_is_bounded() -> None:
    found = optimized_of({"optimized": {"hidden": [ENTRY] * 9000, "hooks": [[0, 1]] * 9000}})
    assert len(found.hidden) == NAMES
    assert len(found.hooks.looks) < 100
