"""job.optimizer: whether the optimizers step all that the ranks train, alike on all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips

from preflight.check import conforms
from preflight.checks import job_optimizer
from preflight.checks.job_optimizer import Optimizers, kept_of
from preflight.domains.job.clipping import Clip, Clipping
from preflight.domains.job.discarded import Discarded
from preflight.domains.job.optimized import Held, Hooks, Loose, Optimized, Plateau, Scheduler
from preflight.domains.job.optimizer_settings import (
    GroupSettings,
    OptimizerSettings,
    SettingsLook,
)
from preflight.domains.job.record import (
    Calls,
    Collective,
    Frame,
    Group,
    Life,
    RehearsalRecord,
    Rehearsed,
    WatchedCommand,
)
from preflight.domains.job.replica import Replica, Sampled
from preflight.domains.job.tied import Untied
from preflight.host import Host
from preflight.model import Cause, Missing, NotApplicable, Status
from preflight.serde import encode

conforms(job_optimizer)

WARN = Status.WARN
LINE = Frame("train.py", 12, "__init__", own=True)
WRAPS = Frame("train.py", 40, "main", own=True)
HIDDEN = Held("layers[0].weight", "[16, 16] float32", LINE, 1, 32)
NEW = Held("head.weight", "[10, 512] float32", None, 0, 32)
OLD = Held("optimizer 0, parameter 4", "[1000, 512] float32", LINE, 0, 32)
PILED = Hooks(tuple((n, n + 1) for n in (0, 1, 2, 4, 8, 12, 16, 24, 32)), 33, "forward hook")
LEFT = Scheduler(LINE, WRAPS, 30, 40)
STEPS = (0, 1, 2, 4, 8, 12, 16, 24, 32)


def beside(slope: float) -> Loose:
    looks = tuple(Sampled(step, (1.0 + slope * step,), (1.0,)) for step in STEPS)
    return Loose(("centres",), ("[4, 8] float32",), "criterion", LINE, looks)


def ranks(*held: Optimized, parts: bool = False) -> dict[str, Optimizers]:
    return {
        f"n1/{rank}": Optimizers(rank, replace(one, steps=40), parts)
        for rank, one in enumerate(held)
    }


def alone(one: Optimizers) -> dict[str, Optimizers]:
    """On rank 1 of two."""
    return {"n1/0": Optimizers(0), "n1/1": replace(one, rank=1)}


def set_to(rate: float, later: float | None = None) -> OptimizerSettings:
    """A learning rate from the start, and from step 4 on."""
    looks = tuple(
        SettingsLook(step, step, (GroupSettings(True, (("lr", (now,)),)),))
        for step in STEPS
        for now in [later if later is not None and step >= 4 else rate]
    )
    return OptimizerSettings("AdamW", 7, LINE, WRAPS, looks)


def counts(name: str, number: float, later: float | None = None) -> OptimizerSettings:
    """What it counts beside its settings, at its steps, and from step 4 on."""
    looks = tuple(
        SettingsLook(step, step, (GroupSettings(True, (("lr", (0.1,)), (name, (float(now),)))),))
        for step in STEPS
        for now in [step + (later if later is not None and step >= 4 else number)]
    )
    return OptimizerSettings("AdamW", 7, LINE, None, looks)


def trained(*settings: OptimizerSettings, unequal: int | None) -> dict[str, Optimizers]:
    """Ranks whose models differ after so many steps."""
    return {
        f"n1/{rank}": Optimizers(
            rank,
            settings=(one,),
            models=tuple(
                (step, rank if unequal is not None and step >= unequal else 9) for step in STEPS
            ),
        )
        for rank, one in enumerate(settings)
    }


ALIKE, TWICE, FALLS = set_to(0.1), set_to(0.2), set_to(0.1, 0.05)
WASTED = Optimizers(0, discarded=(Discarded("SGD", LINE, 40, 39, 117, 156),))
UNTIED = Untied("embed.weight", "head.weight", "[40, 8] float32", LINE, 0, 32)
CLIP = Clip(True, 4, 100, 60, limit=0.5, norm=1.0)
MORE = replace(CLIP, norm=4.0)


def clipped(
    *clips: Clip, shards: tuple[int, ...] = (), unequal: int | None = None, apart: bool = False
) -> dict[str, Optimizers]:
    """What the ranks clip before each step; their models differ after so many."""
    return {
        f"n1/{rank}": Optimizers(
            rank,
            apart=apart,
            clipping=Clipping(WRAPS, tuple((step, (one,)) for step in STEPS)),
            shards=shards,
            models=tuple(
                (step, rank if unequal is not None and step >= unequal else 9) for step in STEPS
            ),
        )
        for rank, one in enumerate(clips)
    }


PLAIN, LESS = replace(CLIP, flat=False), replace(CLIP, flat=False, limit=0.1)
BESIDE, OTHER = Optimized(loose=beside(0.1)), Optimized(loose=beside(0.2))
CASES = (
    Case("nothing", ranks(Optimized(), Optimized())),
    Case("the record can't be read", Missing(Cause.TIMED_OUT)),
    Case("no command", Missing(Cause.NOT_APPLICABLE, "only where a command is rehearsed")),
    *(
        Case(name, ranks(Optimized(), held), code, WARN, subject="n1 · rank 1")
        for name, held, code in (
            ("layers in a list", Optimized(hidden=(HIDDEN,)), "parameters-unregistered"),
            (
                "another head",
                Optimized(unheld=(NEW,), ghosts=(OLD,)),
                "parameters-replaced",
            ),
            (
                "a hook in each step",
                Optimized(hooks=replace(PILED, owner="body", frame=LINE)),
                "hooks-pile-up",
            ),
            ("a scheduler that was left", Optimized(schedulers=(LEFT,)), "scheduler-elsewhere"),
            (
                "two evaluations, four times each",
                Optimized(plateaus=(Plateau(LINE, 2, 4, 4),)),
                "plateau-repeats",
            ),
        )
    ),
    *(
        Case(name, ranks(held, held))
        for name, held in (
            ("a subset on purpose", Optimized(unheld=(NEW,))),
            ("a loss that is not used", Optimized(ghosts=(OLD,))),
            ("for a few steps", Optimized(hidden=(replace(HIDDEN, until=8),))),
            ("a scheduler for one step more", Optimized(schedulers=(replace(LEFT, counts=1),))),
            ("each once", Optimized(plateaus=(Plateau(LINE, 9, 1, 1),))),
            ("now and then twice", Optimized(plateaus=(Plateau(LINE, 9, 1, 2),))),
            ("one evaluation alone", Optimized(plateaus=(Plateau(LINE, 1, 2, 2),))),
            ("averaged by hand", BESIDE),
        )
    ),
    Case(
        "a rate by the rank",
        trained(ALIKE, ALIKE, TWICE, unequal=1),
        "optimizer-differs",
        Status.FAIL,
        subject="n1 · rank 2",
    ),
    Case("a rate that no weight shows", trained(ALIKE, TWICE, unequal=None), "optimizer-differs"),
    Case("a plateau", trained(ALIKE, ALIKE, FALLS, unequal=6), "optimizer-differs", Status.FAIL),
    Case("a plateau of models that differ", trained(ALIKE, FALLS, unequal=2)),
    Case(
        "a state that one rank has loaded",
        trained(counts("state", 64), counts("state", 0), unequal=1),
        "state-differs",
        Status.FAIL,
        subject="n1 · rank 0",
    ),
    Case(
        "and that no weight shows",
        trained(counts("state", 64), counts("state", 0), unequal=None),
        "state-differs",
        WARN,
    ),
    Case("loaded on both", trained(counts("state", 64), counts("state", 64), unequal=None)),
    Case(
        "a step that one of them skips",
        trained(counts("passes", 1), counts("passes", 1), counts("passes", 1, 2), unequal=4),
        "steps-skipped",
        Status.FAIL,
        subject="n1 · rank 2",
    ),
    Case(
        "an evaluation of one rank",
        trained(counts("passes", 1), counts("passes", 1, 40), unequal=None),
    ),
    Case(
        "of models that differed before",
        trained(counts("passes", 1), counts("passes", 1, 2), unequal=2),
    ),
    Case("one schedule", trained(FALLS, FALLS, unequal=None)),
    Case("resets", alone(WASTED), "gradients-discarded", WARN, subject="n1 · rank 1"),
    Case("a tie that is lost", alone(Optimizers(0, untied=(UNTIED,))), "weights-untied", WARN),
    Case("untied just now", alone(Optimizers(0, untied=(replace(UNTIED, until=8),)))),
    Case("shards of FSDP are clipped", clipped(CLIP, MORE), "clip-differs", Status.FAIL),
    Case(
        "shards of its own",
        clipped(PLAIN, replace(PLAIN, norm=4.0), shards=(100,)),
        "clip-differs",
        WARN,
    ),
    Case("max_norm of its own", clipped(PLAIN, LESS, unequal=1), "clip-differs", Status.FAIL),
    Case("max_norm that no weight shows", clipped(PLAIN, LESS)),
    Case("max_norm of ranks in groups", clipped(PLAIN, LESS, unequal=1, apart=True)),
    Case("stages with norms of their own", clipped(PLAIN, replace(PLAIN, norm=4.0), unequal=0)),
    Case("one norm of all shards", clipped(CLIP, CLIP)),
    Case("a loss beside DDP", ranks(BESIDE, OTHER), "parameters-unshared", WARN),
    Case("ranks that exchange tokens", ranks(BESIDE, OTHER, parts=True)),
    Case("on one rank alone", ranks(BESIDE, Optimized())),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judge(case: Case) -> None:
    assert_case(job_optimizer, case)


def test_names_and_lines_are_said() -> None:
    for held, parts in (
        (Optimized(hidden=(HIDDEN,) * 5), ("layers[0].weight", "2 more", "train.py:12")),
        (Optimized(unheld=(NEW,), ghosts=(OLD,)), ("[10, 512]", "[1000, 512]", "train.py:12")),
        (Optimized(hooks=replace(PILED, frame=LINE)), ("33 after 32", "train.py:12")),
        (Optimized(schedulers=(LEFT,)), ("30 times", "40 steps", "train.py:40")),
    ):
        (found,) = judged(job_optimizer, Case("", ranks(held, held)))
        assert [subject.ranks for subject in found.subjects] == [(0,), (1,)]
        assert all(part in found.saw for part in parts), found.saw
    (found,) = judged(job_optimizer, Case("", ranks(BESIDE, OTHER)))
    assert all(p in found.saw for p in ("criterion", "centres", "after 1 step", "train.py:12"))


def test_settings_are_said() -> None:
    (found,) = judged(job_optimizer, Case("", trained(ALIKE, FALLS, unequal=6)))
    parts = ("learning rate is 0.1 on rank 0, 0.05 on rank 1", "since step 5, the same in step 3")
    assert all(part in found.saw for part in (*parts, "train.py:12", "after 8 steps")), found.saw
    assert "train.py:40" in str(found.fields["hint"])
    (found,) = judged(job_optimizer, Case("", trained(ALIKE, TWICE, unequal=1)))
    assert "from the first step" in found.saw
    assert "train.py:12" in str(found.fields["hint"])
    shared = trained(ALIKE, TWICE, unequal=1)
    own = {key: replace(one, apart=True) for key, one in shared.items()}
    assert not judged(job_optimizer, Case("", own))


def test_resets_and_ties_are_said() -> None:
    (found,) = judged(job_optimizer, Case("", alone(WASTED)))
    assert all(part in found.saw for part in ("train.py:12", "39 of 40 steps", "4 batches"))
    (found,) = judged(job_optimizer, Case("", alone(Optimizers(0, untied=(UNTIED,) * 3))))
    assert all(p in found.saw for p in ("embed.weight and head.weight, [40, 8]", "2 more pairs"))


def record(seen: Rehearsed) -> str:
    return json.dumps(encode(RehearsalRecord((seen,))))


@pytest.mark.parametrize(
    ("op", "frame", "parts"),
    [
        ("all_reduce", None, False),
        ("all_gather", WRAPS, False),
        ("all_gather", LINE, True),
        ("all_to_all", None, True),
    ],
)
def test_observe(tmp_path: Path, op: str, frame: Frame | None, parts: bool) -> None:
    life = Life(WatchedCommand(("python", "train.py"), 0, "ended", 12.0), rank=1)
    call = Collective(1, op, "[4] Float", frame)
    seen = Rehearsed(
        life,
        Calls(groups=(Group("world", (0, 1), calls=(call,)),)),
        models=(Replica("ddp", WRAPS),),
        optimized=Optimized(40, hidden=(HIDDEN,)),
        discarded=WASTED.discarded,
    )
    file = tmp_path / "record.json"
    file.write_text(record(seen))
    ctx = context(options={"record": str(file)})
    found = job_optimizer.observe(Host(), ctx)
    assert found == Optimizers(1, seen.optimized, parts, discarded=WASTED.discarded)
    round_trips(found)
    for less, why in (
        (replace(seen, life=replace(life, watched="py-spy")), "outside"),
        (replace(seen, optimized=Optimized()), "no optimizer"),
    ):
        file.write_text(record(less))
        with pytest.raises(NotApplicable, match=why):
            job_optimizer.observe(Host(), ctx)


def test_clips_are_said() -> None:
    for world, parts in (
        (clipped(CLIP, MORE), ("1 on rank 0, 4 on rank 1", "0.125 to 0.5", "train.py:40")),
        (clipped(PLAIN, LESS, unequal=1), ("max_norm is 0.5 on rank 0, 0.1 on rank 1", "1 step")),
        (clipped(CLIP, MORE, MORE, MORE, MORE), ("4 on rank 2 and others on 2 more",)),
    ):
        (found,) = judged(job_optimizer, Case("", world))
        assert all(part in found.saw for part in parts), found.saw


def test_vectors_of_which_a_rank_keeps_a_part() -> None:
    calls = [
        Collective(n, op, f"{shape} Float", LINE)
        for n, (op, shape) in enumerate(
            (
                ("all_reduce", "[200]"),
                ("all_gather", "[100]"),
                ("_reduce_scatter_base", "[60]"),
                ("all_gather", "[7]"),
                ("all_gather", "[4, 30]"),
                ("_all_gather_base", "[30]"),
            )
        )
    ]
    group = Group("0", (0, 1), 6, 6, tuple(calls))
    assert kept_of(Calls(groups=(group,))) == {100, 30}
    assert kept_of(Calls()) == set()
