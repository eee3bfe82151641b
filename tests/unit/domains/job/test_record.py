"""record: where a rank is, and which of its calls it waits in."""

from __future__ import annotations

import pytest

from preflight.domains.job.record import (
    Calls,
    Collective,
    Frame,
    Group,
    Life,
    Rehearsed,
    WatchedCommand,
)
from preflight.domains.job.replica import Replica

TORCH = Frame("torch/distributed/distributed_c10d.py", 2810, "all_reduce")
TRAIN = Frame("train.py", 42, "train", own=True)
MAIN = Frame("train.py", 90, "<module>", own=True)


def test_a_frame_is_shown_as_a_place() -> None:
    assert str(TRAIN) == "train.py:42"


def test_the_own_place_is_the_innermost_one_of_the_users_code() -> None:
    assert Calls(stack=(TORCH, TRAIN, MAIN)).own is TRAIN
    assert Calls(stack=(TORCH,)).own is None
    assert Calls().own is None


def test_the_open_call_of_a_group_is_the_oldest_that_is_not_done() -> None:
    done, oldest, later = (
        Collective(seq, "all_reduce", "[8] Float", done=seq == 1) for seq in (1, 2, 3)
    )
    assert Group("0", calls=(done, oldest, later)).open is oldest
    assert Group("0", calls=(done,)).open is None
    assert Group("0").open is None


@pytest.mark.parametrize(
    ("op", "frame", "exchanges"),
    [
        ("all_reduce", TRAIN, False),
        ("broadcast", None, False),
        ("all_gather_into_tensor", TRAIN, True),
        ("all_to_all", None, True),
        ("all_gather", MAIN, False),  # where DDP is built
    ],
)
def test_what_ranks_exchange(op: str, frame: Frame | None, exchanges: bool) -> None:
    life = Life(WatchedCommand(("python", "train.py"), 0, "ended", 9.0), rank=0)
    calls = Calls(groups=(Group("world", calls=(Collective(1, op, "[8] Float", frame),)),))
    assert Rehearsed(life, calls, models=(Replica("ddp", MAIN),)).exchanges is exchanges
