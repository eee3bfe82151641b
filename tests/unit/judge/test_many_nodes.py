"""What a check takes to judge grows with the nodes, not with their square."""

from __future__ import annotations

import dataclasses
import gc
import sys
import time
import tracemalloc

import pytest
from support.command import REPOSITORY
from support.pace import slower
from support.scenarios import catalogue

from preflight.engine.agent import without_collector
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


MORE = 1.5
"""Times what it does among few, which a node may cost among many: the bar of docs/scale.md, there
from 1,024 to 12,500 nodes. Measured from 256 to 2,048: 0.8 to 0.9 times the CPU, 0.9 the memory."""


EACH = 10 / 12500
"""Seconds of CPU that a node may cost, by the bar of docs/scale.md for 12,500. Measured here, where
what nodes say lies in the order of the checks: 0.5 ms, on two cores with ten other programs."""


def took(seen: Observations, *checks: str) -> float:
    """Seconds of CPU, at best, to judge these checks alone."""
    alone = dataclasses.replace(seen, checks={check: seen.checks[check] for check in checks})
    known, best = catalogue(), float("inf")
    for _ in range(3):
        with without_collector():  # as it is in a run
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


@pytest.mark.slow
@pytest.mark.at_length
def test_a_node_costs_as_much_cpu_among_2048_as_among_256() -> None:
    few, many = (
        took(simulated.observed(simulated.Simulated(nodes, odd=(7, 90))), *CHECKS) / nodes
        for nodes in (256, 2048)
    )
    assert many < MORE * few, f"{many / few:.2f} times"
    assert many < EACH * slower(), f"{1000 * many:.2f} ms a node"


@pytest.mark.slow
@pytest.mark.parametrize("planted", [{"absent": 70}, {"twin": 50}])
def test_a_node_costs_no_more_cpu_where_one_is_absent_or_double(planted: dict[str, int]) -> None:
    """Then five checks are blocked on all others, too."""
    few, many = (
        took(simulated.observed(simulated.Simulated(nodes, **planted)), *CHECKS) / nodes
        for nodes in (128, 640)
    )
    assert many < MORE * few, f"{many / few:.2f} times"


@pytest.mark.slow
@pytest.mark.at_length
@pytest.mark.parametrize("planted", [{"absent": 700}, {"twin": 500}])
def test_what_a_node_costs_where_one_is_absent_or_double(planted: dict[str, int]) -> None:
    each = took(simulated.observed(simulated.Simulated(1024, **planted)), *CHECKS) / 1024
    assert each < EACH * slower(), f"{1000 * each:.2f} ms a node"


@pytest.mark.slow
@pytest.mark.at_length
def test_a_node_takes_as_much_memory_among_512_as_among_64() -> None:
    few, many = (most_memory(nodes) / nodes for nodes in (64, 512))
    assert many < MORE * few, f"{many / few:.2f} times"


def most_memory(nodes: int) -> int:
    """Bytes of Python's objects at most, of what the nodes say and while it is judged."""
    known = catalogue()
    gc.collect()
    tracemalloc.start()
    try:
        seen = simulated.observed(simulated.Simulated(nodes, odd=(7, 50)))
        verdict.judge(seen, known, Expect(), drawn=False)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
