"""What a check takes to judge grows with the nodes, not with their square."""

from __future__ import annotations

import dataclasses
import sys
import time

import pytest
from support.command import REPOSITORY
from support.scenarios import catalogue

from preflight.expect import Expect
from preflight.judge import verdict
from preflight.model import Observations

sys.path[:0] = [str(REPOSITORY / "bench")]

import simulated  # noqa: E402  it lies in another folder

FEW, TIMES = 400, 4
MOST = 2.2 * TIMES
"""A linear one took 1.0 to 1.4 times TIMES on a busy machine, a square one 16."""
TOLD = 0.05
"""Seconds of CPU below which nothing is said of how it grows."""


def took(seen: Observations, check: str) -> float:
    """Seconds of CPU, at best, to judge this check alone."""
    alone = dataclasses.replace(seen, checks={check: seen.checks[check]})
    known, best = catalogue(), float("inf")
    for _ in range(3):
        began = time.process_time()
        verdict.judge(alone, known, Expect(), drawn=False)
        best = min(best, time.process_time() - began)
    return best


@pytest.fixture(scope="module")
def worlds() -> tuple[Observations, Observations]:
    few, many = (
        simulated.observed(simulated.Simulated(nodes, odd=(7, 90))) for nodes in (FEW, FEW * TIMES)
    )
    return few, many


CHECKS = tuple(simulated.Script(simulated.Simulated(2)).checks)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_four_times_the_nodes_take_about_four_times(
    worlds: tuple[Observations, Observations], check: str
) -> None:
    few, many = worlds
    whole = took(many, check)
    assert whole < max(TOLD, MOST * took(few, check))
