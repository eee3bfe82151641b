"""What optimizers hold beside the models, hooks that pile up, schedulers that were left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.domains.job.optimized import (
    Held,
    Hooks,
    Loose,
    Optimized,
    Scheduler,
    alike,
    lasting,
    outdated,
    piles_up,
    replaced,
    unshared,
)
from preflight.domains.job.replica import Sampled

NEW = Held("head.weight", "[10, 512] float32", since=0, until=32)
BIAS = Held("head.bias", "[10] float32", since=0, until=32)
OLD = Held("optimizer 0, parameter 4", "[1000, 512] float32", since=0, until=32)
OLD_BIAS = Held("optimizer 0, parameter 5", "[1000] float32", since=0, until=32)


def test_what_was_seen_for_a_few_steps_does_not_last() -> None:
    assert lasting([NEW, replace(NEW, since=24)]) == (NEW,)


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        ("[10, 512] float32", "[1000, 512] float32", True),
        ("[10, 512] float32", "[10, 512] bfloat16", True),
        ("[10, 512] float32", "[1000, 256] float32", False),
        ("[10] float32", "[1000] float32", True),
        ("[10] float32", "[10, 10] float32", False),
        ("[] float32", "[] float32", True),
    ],
)
def test_a_replacement_differs_in_one_size(mine: str, theirs: str, same: bool) -> None:
    assert alike(mine, theirs) is same


def test_each_new_parameter_has_one_in_its_place() -> None:
    seen = Optimized(unheld=(NEW, BIAS), ghosts=(OLD, OLD_BIAS))
    assert replaced(seen) == ((NEW, OLD), (BIAS, OLD_BIAS))


@pytest.mark.parametrize(
    "seen",
    [
        Optimized(unheld=(NEW, BIAS)),
        Optimized(ghosts=(OLD, OLD_BIAS)),
        Optimized(unheld=(BIAS,), ghosts=(OLD_BIAS,)),
        Optimized(unheld=(NEW,), ghosts=(OLD, OLD_BIAS, replace(OLD, shape="[3, 3, 3] float32"))),
        Optimized(unheld=(replace(NEW, since=24),), ghosts=(OLD,)),
    ],
    ids=["a subset", "an unused loss", "biases alone", "others beside", "just now"],
)
def test_what_may_be_meant_is_no_replacement(seen: Optimized) -> None:
    assert replaced(seen) == ()


def hooks(*counts: int, steps: tuple[int, ...] = (0, 1, 2, 4, 8, 12, 16, 24, 32)) -> Hooks:
    return Hooks(tuple(zip(steps, counts, strict=False)))


@pytest.mark.parametrize(
    ("seen", "first"),
    [
        (hooks(1, 2, 3, 5, 9, 13, 17, 25, 33), 4),
        (hooks(3, 3, 3, 4, 5, 6, 7, 9, 11), 4),
        (hooks(7, 7, 7, 7, 7, 11, 15, 23, 31), 8),
    ],
    ids=["each step", "each fourth step", "from step 8 on"],
)
def test_hooks_that_come_in_every_step_pile_up(seen: Hooks, first: int) -> None:
    looks = piles_up(seen)
    assert (looks[0][0], looks[-1][0]) == (first if first == 8 else looks[0][0], 32)
    assert len(looks) > 4


@pytest.mark.parametrize(
    "seen",
    [
        Hooks(),
        hooks(4, 4, 4, 4, 4, 4, 4, 4, 4),
        hooks(4, 5, 4, 5, 4, 5, 4, 5, 4),
        hooks(4, 4, 4, 4, 8, 12, 16, 16, 16),
        hooks(4, 4, 4, 4, 4, 4, 16, 16, 32),
        hooks(1, 2, 3, 5, 9),
        hooks(0, 1, 2, 3, 4, 5, 6, 7, 8),
    ],
    ids=["none", "once", "removed", "for a while", "by stages", "too short", "too few"],
)
def test_other_hooks_do_not(seen: Hooks) -> None:
    assert piles_up(seen) == ()


def test_a_scheduler_is_left_once_its_optimizer_is() -> None:
    left = Scheduler(None, None, counts=2, idle=16)
    assert outdated([replace(left, counts=1), left]) == left
    assert outdated([replace(left, idle=15), replace(left, counts=1)]) is None


def loose(*sums: float, **more: object) -> Loose:
    looks = zip((0, 1, 2, 4, 8, 12, 16), sums, strict=False)
    checks = tuple(Sampled(step, (one,), (abs(one),)) for step, one in looks)
    return replace(Loose(("centres",), ("[4, 8] float32",), checks=checks), **more)  # type: ignore[arg-type]


SUMS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
OTHERS = (1.0, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7)


def test_the_first_step_after_which_they_differ() -> None:
    found = unshared({0: loose(*SUMS), 1: loose(*OTHERS)})
    assert found is not None
    assert (found.step, found.odd) == (1, (0, 1))


@pytest.mark.parametrize(
    "other",
    [
        loose(*SUMS),
        loose(*SUMS[:5], 1.7, 1.8),
        loose(*OTHERS[:3], *SUMS[3:]),
        loose(*OTHERS, names=("temperature",)),
        loose(*OTHERS, shapes=("[2, 8] float32",)),
        loose(),
    ],
    ids=["alike", "at the end", "shared now and then", "another", "a part", "no look"],
)
def test_others_are_the_same_or_are_meant(other: Loose) -> None:
    assert unshared({0: loose(*SUMS), 1: other}) is None
