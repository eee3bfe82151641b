"""What is said of a network that is slow everywhere, and of a rank that stops on it."""

from __future__ import annotations

import functools

import pytest
from faults.at_length import short
from faults.slow_networks import FAULTS
from faults.world import WorldFault, healthy_twin, judge, lacking, run

pytestmark = [pytest.mark.root, pytest.mark.torch]


@functools.cache
def healthy_seconds(machines: int) -> float:
    return run(healthy_twin(FAULTS[0], machines)).seconds


@pytest.mark.parametrize("fault", short(FAULTS), ids=str)
def test_slow_is_not_called_stuck(fault: WorldFault) -> None:
    if why := lacking(fault):
        pytest.skip(why)
    seconds = healthy_seconds(len(fault.machines))
    verdict = judge(fault, run(fault), seconds)
    if verdict.problems:  # see test_worlds.py: what is wrong twice is wrong
        verdict = judge(fault, run(fault), seconds)
    assert not verdict.problems, "\n".join(verdict.problems)
