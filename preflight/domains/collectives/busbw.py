"""How fast all ranks move data together, and every two nodes by themselves: the measuring.

In a worker. torch is imported inside the functions. All ranks take the same steps as often: rank 0
says how often, by what it has measured so far, so that a slow network makes this short, not long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from preflight.check import Context
from preflight.domains.collectives.allreduce import busbw
from preflight.domains.collectives.pair_bandwidth import plan
from preflight.domains.net.pairing import NodeNumber
from preflight.domains.torch.steps import Steps
from preflight.frozen import dataclass
from preflight.humanize import KIB, size

SECONDS = 1.0
"""For the repeats of one size; a size of which one would take longer is left out."""

FIRST, REPEATS = 3, 20
"""Of the smallest size, whose time is not known before, and at most."""

SHARE = 0.5
"""Of the budget, after which nothing more is begun."""

PASSES, TIMED, MANY = 2, 2, 10
"""What is slow must be slow at two times, and in each exchange of both: at least so many, and at
most, where they are short and a busy CPU counts."""

PAIR_SECONDS, LONGEST = 0.1, 0.4
"""That an exchange takes where all are as slow as the all-reduce was; and where a link is slower
than that, which no ring has gone over."""

LEAST = 64 * KIB
"""Bytes that are exchanged first, to see how long more would take."""


@dataclass(frozen=True, slots=True)
class Point:
    """All-reduces of `bytes` bytes; `seconds` is the median of this rank's repeats."""

    bytes: int
    seconds: float


class Bench:
    """This rank's part of the measuring, in a group that has been joined."""

    def __init__(
        self,
        ctx: Context,
        steps: Steps,
        device: Any = "cpu",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.ctx, self.steps, self.device, self.clock = ctx, steps, device, clock
        self.until = clock() + ctx.seconds * SHARE

    def curve(self, sizes: Sequence[int]) -> Iterator[Point]:
        """All-reduces in rising size, as far as it is worth the time. What is added up are zeros,
        which stay what they are."""
        from statistics import median  # 5 ms that only workers pay

        import torch
        import torch.distributed as dist

        room = torch.zeros(max(sizes) // 4, device=self.device)
        last: Point | None = None
        for count in sizes:
            self.steps.at(f"all_reduce {size(count)}")
            repeats = int(self._from_rank_0(self._repeats(count, last)))
            if not repeats:
                return
            act = partial(dist.all_reduce, room[: count // 4])
            taken = [self._timed(act) for _ in range(repeats + 1)]  # the first one warms up
            last = Point(count, round(median(taken[1:]), 9))
            yield last

    def _repeats(self, count: int, last: Point | None) -> int:
        """How often a size is worth it. It takes at most as much longer as it is larger."""
        if last is None:
            return FIRST
        one = max(last.seconds * count / last.bytes, 1e-9)
        if one > SECONDS or self.clock() > self.until:
            return 0
        return min(max(int(SECONDS / one), 1), REPEATS)

    def pairs(self, last: Point | None, most: int, best: dict[int, float]) -> NodeNumber | None:
        """The first rank of every node exchanges with that of another one, both ways at once, all
        pairs of a round at the same time: into `best`, GB/s by the number of the partner. Which
        number this rank's node has; None where it is not the first one, or alone."""
        import torch
        import torch.distributed as dist

        self.steps.at("pairs")
        flags = torch.zeros(self.ctx.world_size, device=self.device)
        flags[self.ctx.rank] = float(self.ctx.local_rank == 0)
        dist.all_reduce(flags)
        members = [rank for rank, flag in enumerate(flags.tolist()) if flag]
        if len(members) < 2:
            return None
        number = members.index(self.ctx.rank) if self.ctx.rank in members else None
        count = int(self._from_rank_0(self._length(last, most)))
        for turn in range(PASSES):
            for i, made in enumerate(plan(len(members))):
                if not count:
                    break
                self.steps.at(f"pairs, round {i + 1}{' again' if turn else ''}")
                partner = _partner(number, made)
                if partner is not None:
                    gbs = self._exchange(members[partner], count)
                    best[partner] = max(gbs, best.get(partner, 0.0))
                # where all wait for the last pair, they stand at the mark of its round
                count = int(self._from_rank_0(count if self.clock() < self.until else 0))
        return None if number is None else NodeNumber(number, len(members))

    def _length(self, last: Point | None, most: int) -> int:
        """Bytes of one exchange: an all-reduce is as slow as the slowest pair."""
        if last is None or self.clock() > self.until:
            return 0
        rate = busbw(last.bytes, last.seconds, self.ctx.world_size) * 1e9
        return min(max(int(rate * PAIR_SECONDS) // KIB * KIB, LEAST), most)

    def _exchange(self, peer: int, count: int) -> float:
        """GB/s each way with another rank, the best of some, behind less that warms up. Both ends
        know how long that took on both, and come to the same number of bytes."""
        import torch

        least = self._exchange_with(peer, torch.zeros(LEAST // 4, device=self.device))
        self._timed(least)
        own = [min(self._timed(least) for _ in range(TIMED))]
        told = torch.tensor(own, dtype=torch.float64, device=self.device)
        theirs = torch.empty_like(told)
        self._exchange_with(peer, told, theirs)()
        count, times = exchange_size(count, max(own[0], float(theirs[0])))
        act = self._exchange_with(peer, torch.zeros(count // 4, device=self.device))
        return round(count / max(min(self._timed(act) for _ in range(times)), 1e-9) / 1e9, 6)

    def _exchange_with(self, peer: int, out: Any, back: Any = None) -> Callable[[], None]:
        """What sends to a rank and takes as much from it, at once."""
        import torch
        import torch.distributed as dist

        into = torch.empty_like(out) if back is None else back

        def act() -> None:
            ops = [dist.P2POp(dist.isend, out, peer), dist.P2POp(dist.irecv, into, peer)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()

        return act

    def _timed(self, act: Callable[[], object]) -> float:
        self._finish()
        began = self.clock()
        act()
        self._finish()
        return self.clock() - began

    def _finish(self) -> None:
        import torch

        if torch.device(self.device).type == "cuda":
            torch.cuda.synchronize()

    def _from_rank_0(self, value: float) -> float:
        """What rank 0 says, once all ranks have come here."""
        import torch
        import torch.distributed as dist

        own = value if self.ctx.rank == 0 else 0.0
        told = torch.tensor([own], dtype=torch.float64, device=self.device)
        dist.all_reduce(told)
        return float(told[0])


def exchange_size(count: int, seconds: float) -> tuple[int, int]:
    """So many of `count` bytes as take no longer than LONGEST, where LEAST took `seconds`; and how
    often."""
    seconds = max(seconds, 1e-9)
    fits = min(max(int(LEAST * LONGEST / seconds) // KIB * KIB, LEAST), count)
    return fits, min(max(int(PAIR_SECONDS / (seconds * fits / LEAST)), TIMED), MANY)


def _partner(number: int | None, made: Iterable[tuple[int, int]]) -> int | None:
    """The partner of a node in a round; None: it has none."""
    for a, b in made:
        if number in (a, b):
            return b if number == a else a
    return None
