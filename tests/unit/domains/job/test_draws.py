"""Random numbers that ranks draw alike, and should not."""

from __future__ import annotations

from preflight.domains.job.draws import Draw, SameDraws, same_draws

STEPS = (0, 1, 2, 3, 4, 6)
SAMPLES = {0: 8.0, 1: 8.0}


def drawn(numbers: int = 100, seed: int = 0) -> tuple[Draw, ...]:
    return tuple(Draw(step, 1000 * seed + step, numbers) for step in STEPS)


def on_gpu(counted: int = 4, seed: int = 0) -> tuple[Draw, ...]:
    return tuple(Draw(step, 7, 0, 1000 * seed + step, counted) for step in STEPS)


def test_one_state_of_all_ranks() -> None:
    assert same_draws({0: drawn(), 1: drawn(90)}, SAMPLES) == SameDraws(6, 100)
    assert same_draws({0: on_gpu(), 1: on_gpu()}, SAMPLES) == SameDraws(6, 0)


def test_a_seed_each() -> None:
    assert same_draws({0: drawn(), 1: drawn(seed=1)}, SAMPLES) is None
    assert same_draws({0: on_gpu(), 1: on_gpu(seed=1)}, SAMPLES) is None


def test_in_one_step_others() -> None:
    other = (*drawn()[:-1], Draw(STEPS[-1], 99, 100))
    assert same_draws({0: drawn(), 1: other}, SAMPLES) is None


def test_a_number_or_two_may_be_shared_on_purpose() -> None:
    assert same_draws({0: drawn(2), 1: drawn(2)}, SAMPLES) is None
    assert same_draws({0: drawn(40), 1: drawn(40)}, {0: 64.0, 1: 64.0}) is None
    assert same_draws({0: on_gpu(0), 1: on_gpu(0)}, SAMPLES) is None


def test_too_few_steps_or_ranks() -> None:
    assert same_draws({0: drawn()[:3], 1: drawn()}, SAMPLES) is None
    assert same_draws({0: drawn()}, SAMPLES) is None
    assert same_draws({}, {}) is None
