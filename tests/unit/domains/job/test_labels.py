"""Labels that count in the losses of ranks: how many each has."""

from __future__ import annotations

import random

import pytest

from preflight.domains.job.labels import Labels, UnevenLabels, is_of_few, uneven_labels


def counts(*numbers: int) -> tuple[Labels, ...]:
    return tuple(Labels(step, number, 400) for step, number in enumerate(numbers))


MANY, FEW = counts(*[260] * 12), counts(*[16] * 12)


def test_a_rank_with_few_is_named() -> None:
    assert uneven_labels({0: MANY, 1: FEW}) == UnevenLabels((1,), 16, 260, 12)
    assert uneven_labels({0: MANY, 1: MANY, 2: FEW}) == UnevenLabels((2,), 16, 260, 12)
    found = uneven_labels({0: FEW, 1: FEW, 2: MANY, 3: FEW})
    assert found == UnevenLabels((2,), 260, 16, 12)


def test_what_varies_is_not() -> None:
    drawn = random.Random(1)
    for ranks in (2, 4, 64):
        lengths = {
            rank: counts(*(1 + int(drawn.lognormvariate(4, 1.0)) for _ in range(14)))
            for rank in range(ranks)
        }
        assert uneven_labels(lengths) is None


def test_less_than_a_quarter_or_seldom() -> None:
    assert uneven_labels({0: MANY, 1: counts(*[66] * 12)}) is None
    assert uneven_labels({0: MANY, 1: counts(*[16] * 8, *[260] * 4)}) is None


def test_too_little_is_known() -> None:
    assert uneven_labels({0: MANY[:9], 1: FEW}) is None
    assert uneven_labels({0: MANY, 1: ()}) is None
    assert uneven_labels({0: MANY}) is None
    assert uneven_labels({0: counts(*[0] * 12), 1: counts(*[0] * 12)}) is None


@pytest.mark.parametrize("shape", ["[] Long", "[1] Long", "[2] Float; [1] Float", "[2, 4] Float"])
def test_a_few_numbers(shape: str) -> None:
    assert is_of_few(shape)


@pytest.mark.parametrize("shape", ["", "[9] Long", "[1000] Float", "[1] Float" + "; [1] Float" * 8])
def test_more_or_none(shape: str) -> None:
    assert not is_of_few(shape)
