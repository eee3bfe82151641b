"""Parts that an earlier run has left are told from those of this one, whatever the clocks say."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from preflight.judge.other_runs import left_over
from preflight.model import (
    UNNUMBERED,
    Fact,
    Node,
    Observation,
    Observations,
    PreflightError,
    Seen,
    Topology,
)
from preflight.roster import Arrival, Roll
from preflight.serde import encode

NOON = datetime.datetime(2026, 3, 3, 12, tzinfo=datetime.timezone.utc)
MINUTE = 60.0


def wall(at: float) -> float:
    return NOON.timestamp() + at


def part(host: str, rank: int, at: float, roll: Roll | Any, **facts: Fact) -> Observations:
    """Of a run of 30 s that began `at` seconds after noon, by that node's clock."""
    seen: dict[str, Observation] = {host: Seen({"roll": encode(roll)})}
    started = NOON + datetime.timedelta(seconds=at)
    top = Topology(size=2, nodes=(Node(host, (rank,)),), facts=facts)
    return Observations(
        tool={},
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=30.0,
        settings={},
        topology=top,
        checks={"rdzv.reach": seen},
    )


def hosted(at: float, *came: Arrival) -> Observations:
    me = Arrival("n1", "n1", "id1", 100, (0,), 2, offset=0.0)
    roll = Roll(True, "n1", 29500, 2, (0,), "n1", 100, arrivals=(me, *came), began=wall(at))
    return part("n1", 0, at, roll)


def arrival(at: float = 2.0, offset: float | None = 0.0, pid: int = 200) -> Arrival:
    return Arrival("n2", "n2.cluster", "id2", pid, (1,), 2, at=at, offset=offset)


def outside(at: float, rank: int = 1, **facts: Fact) -> Observations:
    """An agent of n2 that waited for 30 s, and never got in."""
    roll = Roll(False, "n1", 29500, 2, (rank,), "n2", 150, waited=30.0, began=wall(at))
    return part("n2", rank, at, roll, **facts)


def names(**parts: Observations) -> list[str]:
    return [*left_over(parts, "rdzv.reach")]


@pytest.mark.parametrize("off", [-25 * MINUTE, -5 * MINUTE, 0.0, 5 * MINUTE, 25 * MINUTE])
def test_parts_of_one_run_stay_though_clocks_are_off_by_minutes(off: float) -> None:
    assert names(h1=hosted(0.0), h2=outside(off)) == []
    assert names(h2=outside(off), h3=outside(0.0, 2)) == []


def test_a_part_of_this_morning_is_left_out() -> None:
    assert names(h2=outside(-240 * MINUTE), h1=hosted(0.0)) == ["h2"]
    assert names(h2=outside(-240 * MINUTE), h3=outside(0.0, 2)) == ["h2"]
    said = left_over({"h2": outside(-240 * MINUTE), "h1": hosted(0.0)}, "rdzv.reach")
    assert said == {"h2": "it ended 4 h before h1 began"}


def test_of_two_hosts_the_later_one_counts() -> None:
    assert names(old=hosted(-240 * MINUTE), new=hosted(0.0), h2=outside(1.0)) == ["old"]


def test_what_came_after_the_hosts_part_may_be_the_run_that_counts() -> None:
    with pytest.raises(PreflightError, match="h2 began 4 h after h1 ended"):
        names(h1=hosted(0.0), h2=outside(240 * MINUTE))


@pytest.mark.parametrize("offset", [-3 * 3600.0, -MINUTE, 0.0, MINUTE, 20 * MINUTE])
def test_of_a_node_that_came_this_time_an_earlier_part_is_left_out(offset: float) -> None:
    """Two minutes after the first run, by a clock whose error the host has measured."""
    host = hosted(0.0, arrival(offset=offset))
    assert names(h1=host, h2=outside(-2 * MINUTE + offset)) == ["h2"]


def test_a_node_that_came_with_another_rank_is_not_meant() -> None:
    assert names(h1=hosted(0.0, arrival()), h2=outside(-2 * MINUTE, 3)) == []
    unnumbered = outside(-2 * MINUTE, 3, **{UNNUMBERED: Fact("2", "torchrun --nnodes")})
    assert names(h1=hosted(0.0, arrival()), h2=unnumbered) == ["h2"]


@pytest.mark.parametrize("offset", [0.0, None])
def test_two_agents_of_one_node_at_the_same_time_both_stay(offset: float | None) -> None:
    host = hosted(0.0, arrival(offset=offset))
    assert names(h1=host, h2=outside(0.5)) == []
    assert names(h1=host, h2=outside(-20.0)) == []


def test_a_clock_that_nobody_has_measured_has_to_be_far_off() -> None:
    host = hosted(0.0, arrival(offset=None))
    assert names(h1=host, h2=outside(-2 * MINUTE)) == []
    assert names(h1=host, h2=outside(-12 * MINUTE)) == ["h2"]


def test_one_that_lost_the_meeting_is_of_this_run() -> None:
    lost = Roll(False, "n1", 29500, 2, (1,), "n2", 200, reached=2.0, lost="x", began=wall(0.0))
    assert names(h1=hosted(0.0, arrival()), h2=part("n2", 1, 0.0, lost)) == []


STRANGE = (
    None,
    7,
    {},
    {"hosts": True, "arrivals": 7},
    {"hosts": True, "arrivals": [7, {"ranks": 1}]},
    {"hosts": False, "host": 7, "began": "x", "waited": None, "reached": float("nan")},
    {"hosts": True, "arrivals": [{"ranks": ["x"], "host": None, "at": {}}], "began": []},
)


@pytest.mark.parametrize("roll", STRANGE)
def test_rolls_that_make_no_sense(roll: Any) -> None:
    strange = part("n2", 1, -MINUTE, Roll(False, "", 0, 2))
    strange.checks["rdzv.reach"]["n2"] = Seen({"roll": roll})  # type: ignore[index]
    assert names(h1=hosted(0.0, arrival()), h2=strange) == []
    assert names(h1=strange, h2=outside(0.0)) == []


def test_nodes_that_were_looked_at_one_by_one_stay() -> None:
    alone = [outside(at * MINUTE, rank) for rank, at in enumerate((0.0, -90.0, 90.0, 1500.0))]
    alone = [dataclasses.replace(one, checks={}) for one in alone]
    assert names(**{f"n{i}": one for i, one in enumerate(alone)}) == []


@pytest.mark.parametrize("started", ["", "yesterday", "2026-13-01T00:00:00Z", "9" * 90])
def test_a_part_that_does_not_say_when_it_began_stays(started: str) -> None:
    strange = dataclasses.replace(outside(-240 * MINUTE), started=started)
    assert names(h1=hosted(0.0), h2=strange) == []
    assert names(h2=strange) == []
    assert names() == []
