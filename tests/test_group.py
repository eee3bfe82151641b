"""group: torch's errors in one line, steps that are marked, no name server where none is needed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import context

from preflight.check import Context
from preflight.domains.collectives import process_group as group
from preflight.domains.collectives.process_group import agree, decline, leave, pooled, without_dns
from preflight.domains.torch.devices import own_gpu
from preflight.domains.torch.steps import TEXT, Steps, Trouble, readable
from preflight.host import Host
from preflight.model import Node, NotApplicable

ROUTE = (
    "The client socket has failed to connect to any network address of (n1, 29500). The client "
    "socket has failed to connect to 89.127.0.0:22528 (errno: 113 - No route to host)."
)
BRACKETS = "The client socket has failed to connect to [::ffff:1.2.3.4]:22528 (errno: 111)."
GLOO = (
    "[enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
    "Unable to find address for: eth7"
)
PAIR = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
NCCL = (
    "NCCL error in: /pytorch/x.cpp:94, invalid usage\nncclInvalidUsage: This usually reflects …\n"
    "Last error:\nDuplicate GPU detected"
)
LOADER = (
    "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
    'last):\n  File "x.py", line 1\nRuntimeError: No space left on device (28)\n'
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n  b", "a b"),
        ("why\nException raised from f at x.cpp:1\nframe #0", "why"),
        (GLOO, "ifa != nullptr. Unable to find address for: eth7"),
        (PAIR + "[10.0.0.1]:8080", "Connection closed by peer [10.0.0.1]:8080"),
        (
            LOADER,
            "Caught RuntimeError in DataLoader worker process 0. RuntimeError: No space left on "
            "device (28)",
        ),
        ("", ""),
    ],
)
def test_readable(text: str, shown: str) -> None:
    assert readable(text) == shown


def test_addresses_of_c10d_are_garbage_but_its_host_and_port_are_right() -> None:
    assert "(n1, 29500)" in readable(ROUTE)
    assert "22528" not in readable(ROUTE) + readable(BRACKETS)
    assert "errno: 113" in readable(ROUTE)


def test_the_reason_of_nccl_comes_first() -> None:
    assert readable(NCCL).startswith("Duplicate GPU detected (NCCL error in")


def test_long_texts_are_cut() -> None:
    assert len(readable("x y " * 1_000_000)) == TEXT


def test_steps_are_marked_before_they_are_taken() -> None:
    marks: list[str] = []
    steps = Steps(context(mark=marks.append))
    with steps.until_trouble():
        steps.at("one")
        steps.at("two")
        raise RuntimeError("no")
    assert marks == ["one", "two"]
    assert list(steps.seconds) == ["one"]
    assert steps.trouble is not None
    assert (steps.trouble.step, steps.trouble.text) == ("two", "no")


def test_our_own_errors_are_not_torchs() -> None:
    steps = Steps(context())
    with pytest.raises(TypeError), steps.until_trouble():
        raise TypeError


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

    heard = room.each(lambda ctx: pooled(ctx, "rank", ctx.rank * 2, three))
    assert all(told == [0, 2, 4] for told in heard.values())
    assert room.lines <= 2 * room.size


def test_without_rank_0_nobody_waits_for_ever(room: Room) -> None:
    began = time.monotonic()
    heard = room.each(lambda ctx: pooled(ctx, "rank", ctx.rank, len), without=[0])
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
    assert time.monotonic() - began < group.CLOSING


@pytest.mark.parametrize("gone", [0, 5])
def test_who_gave_up_waits_for_nobody_and_the_others_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, room: Room, gone: int
) -> None:
    monkeypatch.setattr(group, "CLOSING", 0.2)

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


def test_the_gpu_of_a_rank() -> None:
    at = context(rank=5, local_rank=1, local_world_size=4, world_size=8)
    assert [own_gpu(at, count) for count in (8, 4, 3, 1, 0)] == [1, 1, None, None, None]
    mine = replace(at.topology, nodes=(Node("n1", (5,), size=4),))
    alone = replace(at, topology=mine)
    assert [own_gpu(alone, count) for count in (4, 2, 1, 0)] == [1, None, 0, None]


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
