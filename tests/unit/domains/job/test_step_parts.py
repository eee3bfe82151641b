"""Means and their errors of the batches of a rank."""

from __future__ import annotations

import math

import pytest

from preflight.domains.job.step_parts import BatchAmount, StepPart, StepParts, Timed


def test_means() -> None:
    parts = BatchAmount(batches=4, samples=32, elements=3200, squares=4 * 800**2)
    assert (parts.size, parts.content, parts.error) == (8.0, 100.0, 0.0)


def test_what_varies_is_less_certain() -> None:
    batches = (400, 1200)
    parts = BatchAmount(batches=2, samples=16, elements=1600, squares=sum(b * b for b in batches))
    assert parts.error == pytest.approx(0.5 / math.sqrt(2))


def test_nothing_has_no_mean() -> None:
    parts = StepParts().data
    assert (parts.size, parts.content, parts.error) == (0.0, 0.0, math.inf)


def test_what_the_loaders_gave() -> None:
    parts = StepParts(batches=4, samples=32, elements=3200, squares=4 * 800**2, shape="[8, 100]")
    assert parts.data == BatchAmount(4, 32, 3200, 4 * 800**2, "[8, 100]")


def test_a_part_takes_what_it_takes_in_the_latest_steps() -> None:
    """The first step loads kernels and makes connections."""
    latest = tuple(Timed(StepPart.BACKWARD, at, 0.002) for at in range(4)) + tuple(
        Timed(StepPart.OPTIMIZER, at, took) for at, took in enumerate((0.001, 0.001, 0.5, 0.001))
    )
    parts = StepParts(forward=0.02, backward=3.0, optimizer=0.6, steps=200, latest=latest)
    assert parts.usual(StepPart.BACKWARD) == 0.002
    assert parts.usual(StepPart.OPTIMIZER) == 0.001
    assert parts.usual(StepPart.FORWARD) == 0.0, "none of the latest"
    assert StepParts(backward=3.0, steps=200).usual(StepPart.BACKWARD) == 0.015
    assert StepParts().usual(StepPart.BACKWARD) == 0.0


def test_of_several_in_a_step_all_count() -> None:
    each = (StepPart.FORWARD, StepPart.FORWARD, StepPart.OPTIMIZER) * 3
    latest = tuple(Timed(part, float(at), 0.01) for at, part in enumerate(each))
    assert StepParts(steps=3, latest=latest).usual(StepPart.FORWARD) == pytest.approx(0.02)
