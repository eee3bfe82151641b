"""busbw: ranks that really measure, over Gloo between CPUs, and what is known of common systems."""

from __future__ import annotations

import signal

import pytest
from support import bandwidth_stand_in
from support.cases import Case, context, judged
from support.ranks import run_ranks

from preflight.check import Context
from preflight.checks import world_bandwidth
from preflight.checks.world_bandwidth import GLOO, NCCL, SIZES
from preflight.domains.collectives.busbw import (
    FIRST,
    LEAST,
    MANY,
    REPEATS,
    TIMED,
    Bench,
    Point,
    exchange_size,
)
from preflight.domains.collectives.pair_bandwidth import ROUNDS, plan
from preflight.domains.torch.steps import Steps
from preflight.expect import Expect
from preflight.model import Cause

FLOOR = "allreduce_busbw_gbs"
MIB = 1 << 20


def bench(now: float = 0.0) -> Bench:
    """A rank of 4 with 10 s, of which so many are over."""
    ticks = iter([0.0])
    ctx: Context = context(seconds=10.0)
    return Bench(ctx, Steps(ctx), clock=lambda: next(ticks, now))


def test_a_size_is_repeated_as_often_as_it_is_worth_it() -> None:
    def repeats(last: Point | None, now: float = 0.0) -> int:
        return bench(now)._repeats(4 * MIB, last)

    assert repeats(None) == FIRST
    assert repeats(Point(MIB, 1e-9)) == REPEATS
    assert repeats(Point(MIB, 0.0)) == REPEATS
    assert repeats(Point(MIB, 0.05)) == 5
    assert repeats(Point(MIB, 0.2)) == 1
    assert repeats(Point(MIB, 0.3)) == 0, "the next one would take more than a second"
    assert repeats(Point(MIB, 1e-9), now=5.1) == 0, "half of the time is over"


def test_an_exchange_is_as_long_as_the_network_is_fast() -> None:
    def length(last: Point | None, now: float = 0.0) -> int:
        return bench(now)._length(last, 256 * MIB)

    assert length(Point(1 << 30, 0.01)) == 256 * MIB
    assert length(Point(MIB, 0.4)) == 393216 // 1024 * 1024, "0.1 s at 3.9 MB/s on the wire"
    assert length(Point(MIB, 100.0)) == LEAST
    assert length(None) == 0
    assert length(Point(MIB, 0.4), now=6.0) == 0


def test_a_slow_link_is_not_waited_for() -> None:
    """No ring goes over it, so the all-reduces before were fast."""
    assert exchange_size(4 * MIB, 0.026) == (984 * 1024, TIMED), "20 Mbit/s"
    assert exchange_size(4 * MIB, 50.0) == (LEAST, TIMED)
    assert exchange_size(4 * MIB, 0.0005) == (4 * MIB, 3)
    assert exchange_size(4 * MIB, 0.00005) == (4 * MIB, MANY)
    assert exchange_size(LEAST, 0.0) == (LEAST, MANY)


@pytest.mark.parametrize("count", range(2, 70))
def test_everybody_meets_as_many_others(count: int) -> None:
    made = plan(count)
    assert len(made) <= ROUNDS
    for pairs in made:
        at = [node for pair in pairs for node in pair]
        assert len(at) == len(set(at)), "one partner at a time"
        assert set(at) <= set(range(count))
    met = {n: {p for r in made for p in r if n in p} for n in range(count)}
    assert min(map(len, met.values())) >= min(count - 1, 3)
    if count > ROUNDS + 1:
        assert made[0][0] == (0, 1), "neighbours are likely to share a switch"


FOUR = ("n1", "n2", "n3", "n4")


@pytest.mark.torch
def test_on_one_node_without_gpus_there_is_nothing_to_look_at() -> None:
    seen = run_ranks("world.bandwidth", 3)
    missing = seen.missing(Cause.NOT_APPLICABLE)
    assert missing == seen.observations
    assert all("one node without a GPU" in m.detail for m in missing.values())
    assert max(m.seconds for m in missing.values()) < 3.0, "no wait of any kind"


@pytest.mark.torch
def test_one_rank_has_nobody() -> None:
    (missing,) = run_ranks("world.bandwidth", 1).missing(Cause.NOT_APPLICABLE).values()
    assert missing.detail == "one rank: no other to exchange data with"


@pytest.mark.torch
@pytest.mark.parametrize("homes", [FOUR, ("n1", "n1", "n2", "n2"), ("n1", "n2", "n2")])
def test_ranks_of_several_nodes_over_gloo(homes: tuple[str, ...]) -> None:
    seen = run_ranks("world.bandwidth", len(homes), nodes=homes)
    count = len(set(homes))
    for key, value in seen.seen.items():
        first = int(key[-1]) == homes.index(key[:2])
        assert value.trouble is None
        assert [p.bytes for p in value.curve] == list(SIZES[GLOO])
        assert (value.place is not None) == first
        assert len(value.pairs) == (count - 1 if first else 0)
    assert [v.place.number for v in seen.seen.values() if v.place] == list(range(count))
    shown = world_bandwidth.measured(seen)
    assert shown.values["pairs"] == count * (count - 1) // 2
    assert shown.values["busbw_gbs"] > 0
    (floor,) = judged(world_bandwidth, Case("", seen.observations, expect={FLOOR: 1e6}))
    assert floor.code == "below-expected"


@pytest.mark.torch
def test_ranks_over_what_takes_the_place_of_nccl() -> None:
    """No NCCL and no GPU: torch's CPU over Gloo behind the names of both."""
    seen = run_ranks(
        "world.bandwidth",
        4,
        nodes=("n1", "n1", "n2", "n2"),
        target=bandwidth_stand_in.perform,
        env={"NCCL_DEBUG": "WARN"},
        options={"small": True},
    )
    assert {v.backend for v in seen.seen.values()} == {NCCL}
    assert {v.trouble for v in seen.seen.values()} == {None}
    assert [v.place.number for v in seen.seen.values() if v.place] == [0, 1]
    assert list(world_bandwidth.judge(seen, Expect())) == []
    assert "reach about" not in world_bandwidth.measured(seen).text


@pytest.mark.torch
def test_a_gpu_that_is_full_can_not_be_measured() -> None:
    seen = run_ranks("world.bandwidth", 2, target=bandwidth_stand_in.crowded)
    assert seen.missing(Cause.CANNOT_OBSERVE) == seen.observations
    assert "less than 2 GiB are free" in next(iter(seen.missing().values())).detail


@pytest.mark.torch
def test_cuda_that_does_not_start_holds_nobody_up() -> None:
    seen = run_ranks("world.bandwidth", 2, target=bandwidth_stand_in.broken)
    assert "n1/1" in seen.seen
    assert "not yet initialized" in seen.missing(Cause.NOT_APPLICABLE)["n1/0"].detail


@pytest.mark.torch
def test_the_rank_that_stops_is_named() -> None:
    seen = run_ranks(
        "world.bandwidth", 4, nodes=FOUR, seconds=15.0, send={2: ("pairs, round 1", signal.SIGSTOP)}
    )
    (finding,) = world_bandwidth.judge(seen, Expect())
    assert (finding.code, str(finding.subjects[0])) == ("rank-silent", "n3 · rank 2")
    assert len(finding.subjects) == 1
