"""What all-reduces show between machines: the slow node or link is named; where nothing is wrong,
nobody."""

from __future__ import annotations

import functools

import pytest
from faults.at_length import short
from faults.bandwidth import FAULTS
from faults.healthy_worlds import alarms
from faults.world import Seen, WorldFault, healthy_twin, judge, lacking, run

pytestmark = [pytest.mark.root, pytest.mark.torch]


@functools.cache
def healthy(machines: int) -> Seen:
    return run(healthy_twin(FAULTS[0], machines))


@pytest.mark.parametrize("machines", [2, pytest.param(5, marks=pytest.mark.at_length)])
def test_alike_machines_are_silent(machines: int) -> None:
    if why := lacking(FAULTS[0]):
        pytest.skip(why)
    assert alarms(healthy(machines)) == []
    rows = {row["id"]: row for row in healthy(machines).report["checks"]}
    pairs = rows["world.bandwidth"]["measured"]["pairs"]
    assert pairs == machines * (machines - 1) // 2


@pytest.mark.parametrize("fault", short(FAULTS), ids=str)
def test_the_culprit_is_named(fault: WorldFault) -> None:
    if why := lacking(fault):
        pytest.skip(why)
    seconds = healthy(len(fault.machines)).seconds
    verdict = judge(fault, run(fault), seconds)
    if verdict.problems:  # see test_worlds.py: what is wrong twice is wrong
        verdict = judge(fault, run(fault), seconds)
    assert not verdict.problems, "\n".join(verdict.problems)
