"""Ranks that agree, leave together, and ask no name server where no name needs one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.cases import context

from preflight.check import Context
from preflight.domains.collectives import process_group
from preflight.domains.collectives.process_group import (
    agree,
    decided_by_rank_0,
    decline,
    leave,
    without_dns,
)
from preflight.domains.torch.steps import Steps, Trouble
from preflight.host import Host
from preflight.model import NotApplicable


class Room:
    """Where `size` ranks, each a thread, talk to each other; counts the lines."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lines = 0
        self.changed = threading.Condition()
        self.told: dict[tuple[int, str], dict[int, Any]] = {}

    def each(self, do: Callable[[Context], Any], *, without: Sequence[int] = ()) -> dict[int, Any]:
        """What comes of it on every rank, an exception too."""

        def one(rank: int) -> Any:
            peers = Seat(self, rank)
            try:
                return do(context(rank=rank, world_size=self.size, peers=peers, seconds=2.0))
            except (NotApplicable, TimeoutError) as error:
                return str(error)

        ranks = [r for r in range(self.size) if r not in without]
        with ThreadPoolExecutor(len(ranks)) as pool:
            return dict(zip(ranks, pool.map(one, ranks), strict=True))


class Seat:
    def __init__(self, room: Room, rank: int) -> None:
        self.room, self.rank = room, rank

    def say(self, topic: str, value: Any = None, to: Sequence[int] | None = None) -> None:
        with self.room.changed:
            meant = range(self.room.size) if to is None else to
            # what is said to oneself only leaves the process as well, and ends with the parent
            self.room.lines += len([r for r in meant if r != self.rank])
            for rank in meant:
                self.room.told.setdefault((rank, topic), {})[self.rank] = value
            self.room.changed.notify_all()

    def hear(self, topic: str, count: int, seconds: float) -> Mapping[int, Any]:
        def told() -> dict[int, Any]:
            return self.room.told.get((self.rank, topic), {})

        with self.room.changed:
            self.room.changed.wait_for(lambda: len(told()) >= count, seconds)
            return dict(told())


@pytest.fixture
def room() -> Room:
    return Room(40)


def test_nobody_starts_what_another_cannot_join(room: Room) -> None:
    agree(context(), "")
    with pytest.raises(NotApplicable, match="mine"):
        agree(context(), "mine")
    assert set(room.each(lambda ctx: agree(ctx, "")).values()) == {None}
    assert room.lines <= 2 * room.size


@pytest.mark.parametrize("odd", [0, 7])
@pytest.mark.parametrize("refuse", [agree, decline], ids=lambda f: f.__name__)
def test_all_hear_of_an_obstacle(room: Room, odd: int, refuse: Any) -> None:
    ends = room.each(lambda ctx: (refuse if ctx.rank == odd else agree)(ctx, _obstacle(ctx, odd)))
    del ends[odd]
    assert set(ends.values()) == {f"rank {odd}: has no GPU"}
    assert room.lines <= 2 * room.size


def _obstacle(ctx: Context, odd: int) -> str:
    return "has no GPU" if ctx.rank == odd else ""


def test_all_hear_the_same(room: Room) -> None:
    def three(told: Mapping[int, Any]) -> list[Any]:
        return sorted(told.values())[:3]

    heard = room.each(lambda ctx: decided_by_rank_0(ctx, "rank", ctx.rank * 2, three))
    assert all(told == [0, 2, 4] for told in heard.values())
    assert room.lines <= 2 * room.size


def test_without_rank_0_nobody_waits_for_ever(room: Room) -> None:
    began = time.monotonic()
    heard = room.each(lambda ctx: decided_by_rank_0(ctx, "rank", ctx.rank, len), without=[0])
    assert set(heard.values()) == {None}
    assert time.monotonic() - began < 2.0


def test_all_leave_when_the_last_one_is_through(room: Room) -> None:
    order: list[int] = []

    def last(ctx: Context) -> None:
        if ctx.rank == 5:
            time.sleep(0.3)
            order.append(ctx.rank)
        leave(ctx, Steps(ctx))
        order.append(ctx.rank)

    began = time.monotonic()
    room.each(last)
    assert order[0] == 5, "nobody left before"
    assert len(order) == room.size + 1
    assert room.lines <= 2 * room.size
    assert time.monotonic() - began < process_group.CLOSING


@pytest.mark.parametrize("gone", [0, 5])
def test_who_gave_up_waits_for_nobody_and_the_others_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, room: Room, gone: int
) -> None:
    monkeypatch.setattr(process_group, "CLOSING", 0.2)

    def end(ctx: Context) -> float:
        steps = Steps(ctx)
        if ctx.rank == gone:
            steps.trouble = Trouble("x", "RuntimeError", "no")
        began = time.monotonic()
        leave(ctx, steps)
        return time.monotonic() - began

    seconds = room.each(end, without=[9])
    assert seconds[gone] < 0.2
    assert max(seconds.values()) < 2.0


@pytest.mark.parametrize(
    ("address", "name", "off"),
    [
        ("127.0.0.1", "n1", True),
        ("::1", "n1", True),
        ("n1.cluster", "n1", True),
        ("n2.cluster", "n1", False),
        ("127.0.0.1", "elsewhere", False),
        ("#comment", "n1", False),
    ],
)
def test_the_name_server_is_left_out_where_no_name_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, name: str, off: bool
) -> None:
    monkeypatch.setenv("RES_OPTIONS", "ndots:2")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text("10.1.1.1 n1 n1.cluster #comment n2.cluster\n\n")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/hostname").write_text(name + "\n")
    without_dns(Host(str(tmp_path), environ={}), address)
    assert (os.environ["RES_OPTIONS"] == "attempts:0") is off
