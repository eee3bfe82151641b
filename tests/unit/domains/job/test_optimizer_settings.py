"""Settings of optimizers that differ between ranks, and since which step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from preflight.domains.job.optimizer_settings import (
    GroupSettings,
    OptimizerSettings,
    SettingsLook,
    is_idle,
    unlike,
)

STEPS = (0, 1, 2, 3, 4, 6, 8, 12, 16)


def look(step: int, *rates: float, averaged: bool = True, **more: float) -> SettingsLook:
    others = tuple((name, (value,)) for name, value in more.items())
    groups = (GroupSettings(averaged, (("lr", (rate,)), *others)) for rate in rates)
    return SettingsLook(step, step, tuple(groups))


def of(rates: Sequence[float], **more: float) -> OptimizerSettings:
    """One with one group, by its learning rate at each look."""
    looks = (look(step, rate, **more) for step, rate in zip(STEPS, rates, strict=False))
    return OptimizerSettings("AdamW", 7, looks=tuple(looks))


ALIKE = of([0.1] * 9)


def test_what_is_the_same_is_nothing() -> None:
    assert unlike({0: (ALIKE,), 1: (ALIKE,)}) is None
    assert unlike({0: (ALIKE,), 1: ()}) is None
    assert unlike({0: (of([0.3, 0.2, 0.1]),), 1: (of([0.3, 0.2, 0.1 * (1 + 1e-9)]),)}) is None
    assert unlike({}) is None


def test_a_setting_of_one_rank() -> None:
    found = unlike({0: (ALIKE,), 1: (of([0.2] * 9),), 2: (ALIKE,)})
    assert found is not None
    one, _ = found
    assert (one.name, one.group, one.step, one.agreed, one.odd) == ("lr", 0, 0, -1, (1,))
    assert one.by_rank == {0: (0.1,), 1: (0.2,), 2: (0.1,)}


def test_other_settings_are_named_as_well() -> None:
    here, there = of([0.1] * 3, weight_decay=0.0, eps=1e-8), of([0.2] * 3, weight_decay=0.1)
    found = unlike({0: (here,), 1: (there,)})
    assert found is not None
    assert (found[0].name, found[0].more, found[0].odd) == ("lr", ("weight_decay",), (0, 1))


def test_the_step_is_that_of_the_change() -> None:
    here = replace(of([0.1] * 6 + [0.05] * 3), changes=((7, 9, 0, 0.05),))
    found = unlike({0: (ALIKE,), 1: (here,)})
    assert found is not None
    assert (found[0].step, found[0].clock, found[0].agreed) == (7, 9, 6)
    assert found[0].by_rank == {0: (0.1,), 1: (0.05,)}
    unkept = replace(here, full=3)
    found = unlike({0: (ALIKE,), 1: (unkept,)})
    assert found is not None
    assert (found[0].step, found[0].agreed) == (8, 6)


def test_changes_in_the_same_step_are_no_difference() -> None:
    """A schedule changes the rate in each step; only then one rank is late."""
    steps = [(step, step, 0, 0.1 / step) for step in range(1, 9)]
    rates = [0.1 / max(step, 1) for step in STEPS]
    here, there = replace(of(rates), changes=tuple(steps)), replace(of(rates), changes=tuple(steps))
    late = [*steps[:6], (8, 8, 0, 0.1 / 7)]
    there = replace(of([*rates[:6], 0.1 / 7, *rates[7:]]), changes=tuple(late))
    found = unlike({0: (here,), 1: (there,)})
    assert found is not None
    assert (found[0].step, found[0].agreed) == (7, 6)


def test_rates_that_differ_between_two_looks_only() -> None:
    rates = [0.1] * 7 + [0.01] * 2
    soon, late = (replace(of(rates), changes=((step, step, 0, 0.01),)) for step in (9, 11))
    found = unlike({0: (soon,), 1: (late,), 2: (late,)})
    assert found is not None
    one = found[0]
    assert (one.name, one.step, one.clock, one.agreed, one.odd) == ("lr", 9, 9, 8, (0,))
    assert one.by_rank == {0: (0.01,), 1: (0.1,), 2: (0.1,)}
    assert unlike({0: (soon,), 1: (soon,)}) is None
    assert unlike({0: (replace(soon, full=9),), 1: (late,)}) is None
    looks = tuple(replace(look, groups=(GroupSettings(False),)) for look in late.looks)
    assert unlike({0: (soon,), 1: (replace(late, looks=looks),)}) is None


def test_groups_that_a_rank_does_not_average_are_passed_over() -> None:
    own = replace(ALIKE, looks=(look(0, 0.1, 0.5, averaged=False),))
    other = replace(ALIKE, looks=(look(0, 0.1, 0.7, averaged=False),))
    assert unlike({0: (own,), 1: (other,)}) is None
    second = replace(ALIKE, looks=(look(0, 0.1, 0.7),))
    found = unlike({0: (replace(ALIKE, looks=(look(0, 0.1, 0.5),)),), 1: (second,)})
    assert found is not None
    assert (found[0].group, found[0].groups) == (1, 2)


def test_other_optimizers_are_not_compared() -> None:
    found = unlike({0: (ALIKE, ALIKE), 1: (replace(of([0.2]), signature=8), of([0.3] * 9))})
    assert found is not None
    assert found[0].by_rank == {0: (0.1,), 1: (0.3,)}
    assert unlike({0: (ALIKE,), 1: (replace(of([0.2]), kind="SGD"),)}) is None


def test_ranks_that_know_different_settings() -> None:
    bare = replace(ALIKE, looks=(SettingsLook(0, 0, (GroupSettings(averaged=True),)),))
    assert unlike({0: (ALIKE,), 1: (bare,)}) is None
    assert unlike({0: (bare,), 1: (ALIKE,)}) is None


def test_an_optimizer_whose_learning_rates_are_0_by_now() -> None:
    assert is_idle(of([0.1, 0.0]))
    assert not is_idle(of([0.0, 0.1]))
    assert not is_idle(of([]))
    mixed = OptimizerSettings("AdamW", 7, looks=(look(8, 0.0, 0.1),))
    assert not is_idle(mixed)
    unread = OptimizerSettings("AdamW", 7, looks=(SettingsLook(0, 0, (GroupSettings(True),)),))
    assert not is_idle(unread)


def test_what_a_rank_has_trained_alone_before_is_none_of_them() -> None:
    before = of([0.1, 0.1, 0.1], averaged=False)
    one, other = of([0.1] * 3, state=150.0), of([0.1] * 3, state=0.0)
    found = unlike({0: (before, one), 1: (other,)})
    assert found is not None
    assert found[0].name == "state"
    assert found[0].by_rank == {0: (150.0,), 1: (0.0,)}
    assert unlike({0: (before, other), 1: (other,)}) is None
