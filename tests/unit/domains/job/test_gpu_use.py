"""What is made of the looks at a rank's GPU."""

from __future__ import annotations

import pytest

from preflight.domains.job.gpu_use import GpuLook, GpuUse, WatchedGpu, slow_clocks, use_of

H100 = "NVIDIA H100 80GB HBM3"


def watched(*looks: GpuLook) -> WatchedGpu:
    return WatchedGpu(3, H100, memory=80 << 30, looks=looks)


def busy(at: float, share: float, clock: float) -> GpuLook:
    return GpuLook(at, share, clock, 40 << 30, 500.0)


def test_only_the_time_of_the_steps_counts() -> None:
    looks = [busy(at, 0.0, 210) for at in (1, 2, 3)]  # while it starts
    looks += [busy(at, 0.9, 1900) for at in range(4, 10)]
    looks += [busy(10, 0.0, 210), busy(99, 1.0, 2500)]
    use = use_of(watched(*looks), 30 << 30, 4.0, 10.0)
    assert (use.looks, use.loaded, use.clock) == (7, 6, 1900)
    assert use.share == pytest.approx(0.9 * 6 / 7, abs=1e-3)
    assert (use.used, use.power, use.reserved) == (40 << 30, 500.0, 30 << 30)


def test_what_the_driver_does_not_tell_is_not_known() -> None:
    use = use_of(watched(*(GpuLook(at) for at in range(9))), 1, 0.0, 10.0)
    assert (use.looks, use.busy, use.clock, use.power, use.used) == (0, None, None, None, 0)
    assert use.share is None


def test_few_looks_say_nothing() -> None:
    assert use_of(watched(*(busy(at, 0.1, 900) for at in range(4))), 1, 0.0, 10.0).share is None


def test_a_gpu_that_nobody_knows() -> None:
    assert use_of(None, 7, 0.0, 10.0) == GpuUse(reserved=7)


def test_what_a_gpu_does_for_two_ranks_says_nothing_of_one() -> None:
    looks = watched(*(busy(at, 1.0, 1900) for at in range(9)))
    assert use_of(looks, 1, 0.0, 10.0).share == 1.0
    both = use_of(looks, 1, 0.0, 10.0, ranks=2)
    assert (both.share, both.busy) == (None, 1.0)


def loaded(clock: float | None, name: str = H100, looks: int = 9) -> GpuUse:
    return GpuUse(0, name, looks, looks, 0.9, clock)


@pytest.mark.parametrize(
    ("uses", "slow"),
    [
        ((loaded(1980), loaded(1200), loaded(1950)), {"1": 1965}),
        ((loaded(1980), loaded(1200)), {}),  # two have no majority
        ((loaded(1980), loaded(1700), loaded(1950)), {}),
        ((loaded(1980), loaded(1200, "NVIDIA L40S"), loaded(1950)), {}),
        ((loaded(1980), loaded(1200, looks=4), loaded(1950)), {}),
        ((loaded(1980), loaded(None), loaded(1950)), {}),
        ((loaded(1200), loaded(1210), loaded(1980), loaded(1990)), {}),  # half of them
        (
            (loaded(1200), loaded(1980), loaded(1990), loaded(1985), loaded(1200)),
            {"0": 1982.5, "4": 1982.5},
        ),
    ],
)
def test_a_clock_below_those_of_its_peers(uses: tuple[GpuUse, ...], slow: dict[str, float]) -> None:
    assert slow_clocks({str(i): use for i, use in enumerate(uses)}, 0.8) == slow
