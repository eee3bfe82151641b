"""Means and their errors of the batches of a rank."""

from __future__ import annotations

import math

import pytest

from preflight.domains.job.step_parts import BatchAmount, StepParts


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
