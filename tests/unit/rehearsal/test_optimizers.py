"""What the injected files tell of optimizers is hostile."""

from __future__ import annotations

import pytest

from preflight.domains.job.clipping import Clip, Clipping
from preflight.domains.job.copies import CopyUse, ModelCopy
from preflight.domains.job.discarded import Discarded
from preflight.domains.job.frame import Frame
from preflight.domains.job.needless import (
    Collected,
    Compiled,
    Gathered,
    Needless,
    NoSync,
    Profiled,
    Table,
    WorkerStarts,
)
from preflight.domains.job.optimized import Held, Hooks, Optimized, Plateau, Scheduler
from preflight.domains.job.optimizer_settings import (
    GroupSettings,
    OptimizerSettings,
    SettingsLook,
)
from preflight.domains.job.replica import Sampled
from preflight.domains.job.tied import Untied
from preflight.rehearsal.optimizers import (
    MOST,
    NAMES,
    OPTIMIZERS,
    clipping_of,
    copies_of,
    discarded_of,
    needless_of,
    optimized_of,
    settings_of,
    untied_of,
)

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
    "plateaus": [[LINE, 3, 2, 4], [LINE, 3, 4, 2], [LINE, 0, 0, 0], "x"],
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
    assert found.plateaus == (Plateau(HERE, 3, 2, 4),)


@pytest.mark.parametrize(
    "told",
    [
        None,
        3,
        [],
        {"hidden": 3, "loose": [], "hooks": {}, "most": "x", "schedulers": [[]], "plateaus": {}},
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


def test_settings_are_read() -> None:
    good = [True, {"lr": [0.1], "betas": [0.9, 0.99], "eps": ["x"], "rho": [float("nan")]}]
    told = {
        "kind": "AdamW",
        "signature": 7,
        "frame": LINE,
        "schedule": None,
        "looks": [[0, 0, [good, 3]], [1, -1, [good]], [2, 2, "x"], 5],
        "changes": [[1, 1, 1, 0.2], [1, 1, 2, 0.2], [2, 2, 0, float("inf")], ["x"]],
        "full": -3,
    }
    (found,) = settings_of({"settings": [told, 3]})
    values = (("lr", (0.1,)), ("betas", (0.9, 0.99)))
    groups = (GroupSettings(True, values), GroupSettings(False))
    looks = (SettingsLook(0, 0, groups),)
    assert found == OptimizerSettings("AdamW", 7, HERE, None, looks, ((1, 1, 1, 0.2),))
    assert len(settings_of({"settings": [told] * 99})) == OPTIMIZERS
    assert settings_of({"settings": 3}) == ()
    assert settings_of({"settings": [{}]}) == (OptimizerSettings("", 0),)


def test_resets_and_ties_are_read() -> None:
    good = ["SGD", LINE, 40, 38, 114, 152]
    rubbish = [["SGD", None, 4, 5, 5, 8], ["SGD", None, 0, 0, 0, 0], ["SGD"], 3]
    assert discarded_of({"resets": [good, *rubbish]}) == (Discarded("SGD", HERE, 40, 38, 114, 152),)
    tie = ["a.weight", "b.weight", "[2] float32", LINE, 1, 32]
    found = untied_of({"ties": [tie, [*tie[:4], 3, 2], "x"]})
    assert found == (Untied("a.weight", "b.weight", "[2] float32", HERE, 1, 32),)
    assert discarded_of({}) == untied_of({"ties": {}}) == ()


def test_clips_and_copies_are_read() -> None:
    good = [True, 4, 100, 60, 1, 2.5]
    rubbish = [[1, 4, 100, 60, 0.5, 2.0], [True, 4, -1, 60, 0.5, 2.0], [True, 4, 1, 1, "x", 2.0], 3]
    told = {"frame": LINE, "looks": [[0, [good, *rubbish]], [-1, []], 5]}
    clip = Clip(True, 4, 100, 60, 1.0, 2.5)
    assert clipping_of({"clips": told}) == Clipping(HERE, ((0, (clip,)),))
    assert clipping_of({"clips": [1]}) == clipping_of({"clips": {"looks": 3}}) == Clipping()
    use = ["load", 0, 20, LINE, "1.5", "2"]
    entry = {"frame": LINE, "names": ["w"], "shapes": ["[2] float32"], "looks": [[0, "1", "1"]]}
    entry["uses"] = [use, ["reads", *use[1:]], ["load", -1, *use[2:]], ["load", 0, 1, None, 3, 4]]
    found = copies_of({"copies": [entry, {**entry, "names": []}, 3]})
    looked, used = Sampled(0, (1.0,), (1.0,)), Sampled(20, (1.5,), (2.0,))
    uses = (CopyUse("load", 0, HERE, used),)
    assert found == (ModelCopy(HERE, ("w",), ("[2] float32",), (looked,), uses),)
    assert copies_of({"copies": 3}) == copies_of({}) == ()


def test_what_is_paid_for_without_need() -> None:
    line = [LINE, 1, 60, 60, 0]
    told = {
        "profiled": [40, 400, LINE],
        "gathered": [line, [None, 1, 2, 1, 0], [LINE, 3, 2, 1, 0], [LINE], 7],
        "whole": 100,
        "no_sync": [180, 0, LINE],
        "starts": [9, 3.5, 100.0, 160.0, LINE],
        "compiled": [16, 20.5, 44.0, "0/3: len(keep) == 4   # for i in keep:\nUser stack", LINE],
        "garbage": [24, 7.5, 0.4, 31.0, 6.5, LINE],
        "tables": [["w", [9, 2], 72, 0.1, 80], ["w", [9], 72, 0.1, 80], ["w", [9, 2], 0, 2.0, 1]],
    }
    assert needless_of({"needless": told}) == Needless(
        Profiled(40, 400, HERE),
        (Gathered(HERE, 1, 60, 60),),
        100,
        NoSync(180, 0, HERE),
        WorkerStarts(9, 3.5, 60.0, HERE),
        Compiled(16, 20.5, 44.0, "len(keep) == 4", HERE),
        Collected(24, 7.5, 0.4, 31.0, 6.5, HERE),
        (Table("w", 9, 2, 72, 0.1, 80),),
    )
    assert needless_of({}, [40, 400, LINE]).profiled == Profiled(40, 400, HERE)
    nonsense = {"profiled": [-1, "x", 3], "gathered": "x", "whole": -5, "no_sync": [1]}
    nonsense |= {"starts": [0, 0.0, None, 0.0, None], "compiled": [2, float("nan"), 1.0, "", LINE]}
    nonsense |= {"tables": [["w", [9, 2], 72, 2.0, 80], ["w", [-9, 2], 72, 0.1, 80]]}
    nonsense |= {"garbage": [3, 1.0, "x", 2.0, -1.0, LINE]}
    for dump in ({}, {"needless": 3}, {"needless": nonsense}):
        assert needless_of(dump) == Needless()
