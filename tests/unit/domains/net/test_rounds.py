"""One node's way through the rounds of pairs: nobody waits for long, nobody is believed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from support.cases import context
from support.relay import Relay, together

from preflight.domains.net.rounds import (
    ABSENT,
    NO_TIME,
    PairRounds,
    Trial,
    _read_listener,
    _read_numbers,
)
from preflight.host import Host


def visit(relay: Relay, number: int, seconds: float = 12.0) -> tuple[Trial, ...]:
    ctx = context(rank=number, world_size=relay.count, seconds=seconds, peers=relay.peers(number))
    with PairRounds(Host(), ctx, "127.0.0.1") as rounds:
        return rounds.all_rounds()


def test_both_ends_of_a_pair_measure() -> None:
    relay = Relay(2)
    for trials in together(2, lambda number: visit(relay, number)):
        (trial,) = trials
        assert trial.moved.error == ""
        assert trial.moved.inward is not None


def test_who_does_not_come_costs_some_seconds() -> None:
    began = time.monotonic()
    (trial,) = visit(Relay(2), 0)
    assert trial.moved.error == ABSENT
    assert time.monotonic() - began < 5.0


def test_when_the_time_is_up_nothing_is_begun() -> None:
    (trial,) = visit(Relay(2), 0, seconds=0.0)
    assert trial.moved.error == NO_TIME


@pytest.mark.parametrize(
    "value",
    [
        "x",
        [1],
        ["no address", 80, "n"],
        ["127.0.0.1", 99999, "n"],
        [None, None, None],
        None,
        ["127.0.0.1", True, "n"],
        ["127.0.0.1", 80, 7],
    ],
)
def test_a_listener_that_is_none(value: Any) -> None:
    assert _read_listener(value) is None


def test_a_listener() -> None:
    assert _read_listener(["127.0.0.1", 80, "n" * 99]) == ("127.0.0.1", 80, "n" * 32)


@pytest.mark.parametrize(
    "value", ["ab", [1], [1, "2"], [1, -1], [1, float("nan")], [1, True], [1, 1e300]]
)
def test_numbers_that_are_none(value: Any) -> None:
    assert _read_numbers(value, 2) is None
    assert _read_numbers([1, 2.5], 2) == (1, 2.5)
