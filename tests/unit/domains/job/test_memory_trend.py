"""memory_trend: what grows to its end is told from all that memory does in a healthy job."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from preflight.domains.job.memory_trend import (
    MOST,
    POINTS,
    Point,
    Rise,
    Trend,
    after_warm_up,
    growth,
    rise,
)

MIB = 1 << 20


def watch(
    height: Callable[[float], float], seconds: int = 120, rate: float = 2.0, base: int = 1024
) -> list[Point]:
    """A look a second at a job that does `rate` steps per second: base + height(step), in MiB."""
    steps = [int(at * rate) + 1 for at in range(seconds)]
    return [(float(at), n, int((base + height(n)) * MIB)) for at, n in enumerate(steps)]


def found(points: list[Point]) -> Trend | None:
    return growth(after_warm_up(points))


def noise(seed: int, width: float) -> Callable[[float], float]:
    made = random.Random(seed)
    return lambda step: made.uniform(-width, width)


def teeth(period: int, size: float) -> Callable[[float], float]:
    return lambda step: (step % period) / period * size


def jumps(*at: int, size: float = 300.0) -> Callable[[float], float]:
    return lambda step: size * sum(step >= one for one in at)


def sag(step: float) -> float:
    return step if step < 160 else 320 - step


HEALTHY = {
    "constant": lambda step: 0.0,
    "shrinks": lambda step: -step,
    "warm-up": lambda step: min(step, 40) * 20,
    "a slow warm-up, over 60 of 120 s": lambda step: min(step, 120) * 5,
    "a heap that finds its size": lambda step: 300 * (1 - math.exp(-step / 40)),
    "like a logarithm": lambda step: 100 * math.log(step),
    "like a square root": lambda step: 40 * math.sqrt(step),
    "teeth of 10 steps": teeth(10, 200),
    "teeth of 37 steps": teeth(37, 400),
    "teeth of 60 steps": teeth(60, 600),
    "teeth of 110 steps": teeth(110, 600),
    "an evaluation": jumps(150),
    "the last look": jumps(239),
    "two evaluations": jumps(120, 200),
    "three": jumps(100, 150, 200),
    "eight": jumps(*range(100, 240, 18)),
    "one that gives back": lambda step: 500.0 if 150 <= step < 170 else 0.0,
    "data that is cached once": lambda step: min(step, 180) * 4,
    "up and down again": sag,
    "a wave": lambda step: 100 * math.sin(step / 15),
    "noise": noise(1, 30),
    "much noise": noise(2, 500),
    "noise on teeth": lambda step: teeth(25, 100)(step) + noise(int(step), 20)(step),
    "noise on a jump": lambda step: jumps(160)(step) + noise(int(step), 20)(step),
    "pages now and then": lambda step: step // 60,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_healthy_is_no_growth(name: str) -> None:
    points = watch(HEALTHY[name])
    assert after_warm_up(points), "it was seen long enough"
    assert found(points) is None


@pytest.mark.parametrize("rate", [0.2, 0.5, 2.0, 50.0])
def test_a_leak(rate: float) -> None:
    trend = found(watch(lambda step: step * 3, rate=rate, seconds=240))
    assert trend is not None
    assert trend.per_step == pytest.approx(3 * MIB, rel=0.02)
    assert trend.per_second == pytest.approx(3 * MIB * rate, rel=0.05)
    assert trend.grown == pytest.approx(3 * MIB * trend.steps, rel=0.02)


def test_a_leak_in_looks_that_scatter() -> None:
    """The GPU's memory: an activation more or less, by when one happens to look."""
    for seed in range(20):
        scatter = noise(seed, 20)
        trend = found(watch(lambda step, more=scatter: step * 2 + more(step)))
        assert trend is not None, seed
        assert trend.per_step == pytest.approx(2 * MIB, rel=0.25)


def test_a_leak_with_a_warm_up_and_with_an_evaluation() -> None:
    def shape(step: float) -> float:
        return min(step, 30) * 20 + step * 3 + (50 if 140 <= step < 150 else 0)

    trend = found(watch(shape))
    assert trend is not None
    assert trend.per_step == pytest.approx(3 * MIB, rel=0.05)


@given(st.integers(0, 1 << 32), st.integers(20, 200), st.floats(0.2, 20), st.floats(0.0, 0.9))
@settings(max_examples=400, deadline=None)
def test_noise_around_a_constant_is_no_growth(
    seed: int, seconds: int, rate: float, part: float
) -> None:
    made = random.Random(seed)
    shape = made.choice(
        [
            lambda step: made.uniform(-1, 1),
            lambda step: max(-1.0, made.gauss(0, 0.4)),
            lambda step: float(made.random() < 0.1),
        ]
    )
    assert found(watch(lambda step: 1024 * part * shape(step), seconds, rate)) is None


@given(st.floats(0.5, 200), st.floats(0.3, 10), st.integers(0, 1 << 32), st.integers(60, 240))
@settings(max_examples=200, deadline=None)
def test_a_leak_above_the_noise_is_growth(mib: float, rate: float, seed: int, seconds: int) -> None:
    assume(rate * seconds >= 40)  # else the steps are too few
    made = random.Random(seed)
    between = max(1.0, rate) * mib  # what comes from one look to the next
    points = watch(lambda step: mib * step + made.uniform(0, 0.2) * between, seconds, rate)
    trend = found(points)
    assert trend is not None
    assert trend.per_step == pytest.approx(mib * MIB, rel=0.3)


def test_too_little_says_nothing() -> None:
    def leak(step: float) -> float:
        return step * 100

    assert after_warm_up([]) == ()
    assert after_warm_up(watch(leak, seconds=12)) == ()
    assert after_warm_up(watch(leak, rate=0.05)) == (), "7 steps"
    assert after_warm_up(watch(leak, rate=0.0)) == (), "one step for ever"
    assert after_warm_up([(at, 0, 1 << 30) for at in range(200)]) == (), "no step at all"
    assert after_warm_up(watch(leak, rate=0.09, seconds=200)) == (), "12 steps after the warm-up"
    assert after_warm_up([(0.5 * i, 5 * i + 1, i << 20) for i in range(1, 25)]) == (), (
        "6 s after it"
    )
    assert after_warm_up(watch(leak, seconds=30))
    assert growth(after_warm_up(watch(leak))[: POINTS - 1]) is None


def test_a_short_watch_loses_its_first_half() -> None:
    assert min(at for at, _, _ in after_warm_up(watch(lambda step: step, seconds=30))) >= 14
    assert min(at for at, _, _ in after_warm_up(watch(lambda step: step, seconds=45))) >= 20
    # a third of the steps
    assert min(at for at, _, _ in after_warm_up(watch(lambda step: step, seconds=300))) >= 99
    assert len(after_warm_up(watch(lambda step: step, seconds=300))) <= MOST


def test_looks_without_an_answer_do_not_count() -> None:
    points = watch(lambda step: step * 3)
    blind = [(at, step, 0 if i % 3 == 0 else used) for i, (at, step, used) in enumerate(points)]
    assert found(blind) is not None


def test_only_the_last_start_of_a_job_counts() -> None:
    before = watch(lambda step: 0, seconds=100)
    after = [(at + 100, step, used) for at, step, used in watch(lambda step: step * 5)]
    trend = found(before + after)
    assert trend is not None
    assert trend.per_step == pytest.approx(5 * MIB, rel=0.05)
    leak = watch(lambda step: step * 5, seconds=100)
    still = [(at + 100, step, used) for at, step, used in watch(lambda step: 0)]
    assert found(leak + still) is None


def test_strange_numbers_are_left_out() -> None:
    strange = [(math.nan, 5, 5), (math.inf, 9, 9), (3.0, -1, 5), (4.0, 5, -7), (5.0, 9, 10**400)]
    points = watch(lambda step: step * 3)
    assert found([*strange, *points]) == found(points)
    assert after_warm_up(strange) == ()


def line(*heights: float) -> list[Point]:
    return [(5.0 * i, 10 * i, int(height * MIB)) for i, height in enumerate(heights)]


def test_of_few_points_none_may_be_out_of_order() -> None:
    assert growth(line(0, 10, 20, 30, 40, 50, 60, 70)) is not None
    assert growth(line(0, 10, 20, 40, 35, 50, 60, 70)) is None
    many = [10.0 * i for i in range(24)]
    many[7], many[8], many[15], many[16] = many[8], many[7], many[16], many[15]
    assert growth(line(*many)) is not None


def test_what_gives_much_of_it_back_is_no_growth() -> None:
    """Even if it goes up nearly always and ends much higher."""
    assert growth(line(*(10 * i - 30 * (i // 12) for i in range(24)))) is not None
    assert growth(line(*(10 * i - 85 * (i // 12) for i in range(24)))) is None


def test_the_present_pace_counts() -> None:
    trend = growth(line(*(10 * i for i in range(12)), *(110 + 9 * i for i in range(1, 13))))
    assert trend is not None
    assert trend.per_step == pytest.approx(0.9 * MIB, rel=0.01)
    faster = growth(line(*(10 * i for i in range(12)), *(110 + 15 * i for i in range(1, 13))))
    assert faster is not None
    assert faster.per_step < 1.5 * MIB, "nor is a burst at the end its pace"


def used(*mib: float, every: int = 4) -> list[tuple[int, int]]:
    return [(1 + n * every, int(each * MIB)) for n, each in enumerate(mib)]


LEAK = used(300, 500, 700, 900, 1100, 1300, 1500, 1700)


@pytest.mark.parametrize(
    ("points", "found"),
    [
        (LEAK, Rise(5, 500 * MIB, 29, 1700 * MIB)),
        # activations that a look met or did not, within one count of steps
        ([*LEAK, (9, 1650 * MIB), (29, 2000 * MIB)], Rise(5, 500 * MIB, 29, 1700 * MIB)),
        (used(300, 900, 902, 901, 903, 902, 904, 905), None),
        (used(300, 500, 500, 500, 500, 500, 500, 1700), None),
        (used(100, 300, 800, 1300, 1400, 1430, 1450, 1460), None),
        (LEAK[:6], None),
        ([(0, MIB)] * 20, None),
        ([(1, 0), (-1, 5), (3, 1 << 80)], None),
        ([], None),
    ],
    ids=["leaks", "noise", "steady", "at once", "fills", "short", "no steps", "hostile", "nothing"],
)
def test_memory_that_ran_out(points: list[tuple[int, int]], found: Rise | None) -> None:
    assert rise(points) == found


def test_bytes_per_step() -> None:
    found = rise(LEAK)
    assert found is not None
    assert found.per_step == 50 * MIB
