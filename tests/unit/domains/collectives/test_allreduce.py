"""All-reduces whose sums are known: bandwidth, exactness, and what there is time for."""

from __future__ import annotations

import math

from preflight.checks.world_gloo import SIZES
from preflight.domains.collectives.allreduce import (
    busbw,
    expected_seconds,
    repeats_within,
    weight,
)
from preflight.humanize import MIB


def test_the_bus_bandwidth_is_that_of_nccl_tests() -> None:
    assert busbw(1_000_000_000, 1.0, 2) == 1.0
    assert busbw(1_000_000_000, 1.0, 8) == 1.75
    assert busbw(4, 0.0, 4) == 0.0
    assert busbw(4, 1.0, 1) == 0.0


def test_no_sum_leaves_what_float32_adds_exactly() -> None:
    assert sum(weight(rank) for rank in range(15_000)) + 60 * 15_000 < 1 << 24
    assert len({weight(rank) for rank in range(400)}) == 400


def test_what_takes_long_is_foreseen() -> None:
    assert expected_seconds({}, 4) == 0.0, "the smallest is tried"
    assert expected_seconds({4: 0.2}, 4096) == 0.2, "what takes that long is the way, not the size"
    assert expected_seconds({4: 0.2, 4096: 0.1}, 65536) == 0.1
    # 5 Mbit/s each way and 40 ms: linear from the smallest on, whatever that takes
    seconds = {count: 0.04 + count / 625_000 for count in list(SIZES)[:-1]}
    assert math.isclose(expected_seconds(seconds, 16 * MIB), 0.04 + 16 * MIB / 625_000)


def test_of_what_there_is_time_for_no_more_is_done() -> None:
    assert repeats_within(0.0, -1.0, 3) == 4, "what is not known"
    assert repeats_within(1.0, 10.0, 3) == 4
    assert repeats_within(4.0, 10.0, 3) == 2
    assert repeats_within(10.1, 10.0, 1) == 0
    assert repeats_within(0.1, -1.0, 3) == 0
