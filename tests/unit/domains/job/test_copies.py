"""Copies of a model: which are used while they differ, and which each rank may have for itself."""

from __future__ import annotations

from dataclasses import replace

from preflight.domains.job.copies import FORWARD, LOAD, CopyUse, ModelCopy, changes, copies_apart
from preflight.domains.job.frame import Frame
from preflight.domains.job.replica import Sampled

MADE, USED = (Frame("train.py", line, "main", own=True) for line in (12, 30))
STEPS = (0, 1, 2, 4, 8)


def looked(step: int, value: float) -> Sampled:
    return Sampled(step, (value,), (1.0,))


def copied(slope: float, *uses: float, how: str = LOAD, step: int = 8) -> ModelCopy:
    """Which changes by so much in each step, and has these numbers when it is used."""
    return ModelCopy(
        MADE,
        ("weight",),
        ("[4] float32",),
        tuple(looked(step, 1.0 + slope * step) for step in STEPS),
        tuple(CopyUse(how, n, USED, looked(step, value)) for n, value in enumerate(uses)),
    )


def apart(*copies: ModelCopy, unequal: int | None = None) -> str:
    found = copies_apart({rank: (one,) for rank, one in enumerate(copies)}, unequal)
    return "" if found is None else found.use.how if found.use else "updated"


def test_one_that_rank_0_alone_updates() -> None:
    updated, still = copied(0.1, 1.8), copied(0.0, 1.0)
    assert changes(updated)
    assert not changes(still)
    found = copies_apart({0: (updated,), 1: (still,)}, None)
    assert found is not None
    assert found.use == updated.uses[0]
    assert found.still == (1,)
    assert found.drift.odd == (0, 1)
    assert apart(copied(0.1, 1.8, how=FORWARD), copied(0.0, 1.0, how=FORWARD)) == FORWARD


def test_one_that_is_used_by_rank_0_alone() -> None:
    assert apart(copied(0.1, 1.8), copied(0.0)) == ""
    assert apart(copied(0.1, 1.8), copied(0.0, 1.0, step=4)) == ""


def test_one_that_is_shared_before_it_is_used() -> None:
    assert apart(copied(0.1, 1.8, 2.0), copied(0.0, 1.8, 2.0)) == ""
    assert apart(copied(0.1, 1.8, 2.0), copied(0.0, 1.8, 2.1)) == LOAD


def test_of_models_that_differ() -> None:
    assert apart(copied(0.1, 1.8), copied(0.2, 2.6), unequal=8) == ""
    assert apart(copied(0.1, 1.8), copied(0.2, 2.6), unequal=9) == LOAD
    assert apart(copied(0.1), copied(0.2), unequal=32) == ""


def test_all_ranks_update_it_apart() -> None:
    assert apart(copied(0.1), copied(0.2)) == "updated"
    assert apart(copied(0.1), copied(0.1)) == ""
    assert apart(replace(copied(0.1), replaced=True), copied(0.2)) == ""
    begins_apart = replace(copied(0.1), looks=tuple(looked(s, 5.0 + s) for s in STEPS))
    assert apart(copied(0.1), begins_apart) == "updated"  # made before DDP made the models equal


def test_what_not_all_ranks_have() -> None:
    assert copies_apart({0: (copied(0.1),), 1: ()}, None) is None
    assert copies_apart({0: (copied(0.1),)}, None) is None
    assert copies_apart({}, None) is None
    assert apart(copied(0.1), replace(copied(0.2), frame=USED)) == ""
