"""Where models of ranks differ that should be the same."""

from __future__ import annotations

import math

from preflight.domains.job.replica import Replica, Sampled, differs_at, odd_ones


def model(*sums: float | None, dtype: str = "float32", step: int = 1, names: int = 0) -> Replica:
    many = tuple(f"p{n}" for n in range(names or len(sums)))
    look = Sampled(step, sums, tuple(1.0 if s is not None else None for s in sums))
    return Replica("ddp", names=many, shapes=(f"[2] {dtype}",) * len(many), checks=(look,))


def test_the_most_are_right() -> None:
    assert odd_ones({0: 1, 1: 1, 2: 5}) == ((2,), False)
    assert odd_ones({0: 1, 1: 2}) == ((0, 1), True)
    assert odd_ones({0: 1, 1: 2, 2: 3}) == ((0, 1, 2), True)


def test_half_precision_may_round_otherwise() -> None:
    one, other = 1.0, 1.001
    assert differs_at({0: model(one), 1: model(other)}) is not None
    assert differs_at({0: model(one, dtype="bfloat16"), 1: model(other, dtype="bfloat16")}) is None


def test_what_can_not_be_read_is_not_compared() -> None:
    assert differs_at({0: model(None), 1: model(3.0)}) is None
    assert differs_at({0: model(1.0, step=1), 1: model(2.0, step=2)}) is None
    assert differs_at({0: model(1.0)}) is None
    assert differs_at({}) is None


def test_no_number_equals_no_number() -> None:
    nan = math.nan
    assert differs_at({0: model(nan), 1: model(math.inf)}) is None
    found = differs_at({0: model(1.0, nan), 1: model(1.0, 2.0), 2: model(1.0, 2.0)})
    assert found is not None
    assert (found.name, found.odd, found.tie) == ("p1", (0,), False)


def test_of_many_parameters_some_are_compared() -> None:
    found = differs_at({0: model(1.0, 1.0, names=5), 1: model(1.0, 2.0, names=5)})
    assert found is not None
    assert (found.name, found.many, found.compared) == ("p3", 1, 2)
