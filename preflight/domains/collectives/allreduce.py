"""An all-reduce whose sums are known: do it (in a worker), judge it, show it.

What goes in are whole numbers that float32 adds exactly in any order, so one wrong bit is seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from preflight import humanize
from preflight.check import Context
from preflight.domains.net import slow_pairs
from preflight.domains.torch.steps import Steps
from preflight.frozen import dataclass
from preflight.humanize import duration, latency, plural, size
from preflight.model import (
    Blame,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    World,
    of_each,
)

# both prime: no chunk of a power of two fits into a wrong place unseen; and with weights below
# 1021 the sum over 15,000 ranks is still exact in float32 (below 2^24)
PATTERN, WEIGHTS = 61, 1021

SHARE = 0.5
"""Of the time that is left, what one size may take: the other half is for what was foreseen wrong,
and for the sizes that come after it."""

LARGEST = 3.4028235e38
"""The largest float32: JSON has neither infinity nor NaN."""

FINDINGS = {
    "wrong-sum": FindingType(
        headline="all-reduce returns wrong sums: {seen}",
        cause="defective memory, or a device that computes wrong checksums or sums",
        means="no error at all: wrong gradients, a loss that is NaN or differs between runs",
        text="exclude that node, then test its memory, its GPUs (dcgmi diag -r 3) and its NIC",
        blame=(Blame.NODE, Blame.UNKNOWN),
    ),
    "slow": FindingType(
        headline="{seen}",
        cause="the management network used for data, a rate limit, a NIC that fell back to a "
        "lower speed, or nodes that are too busy",
        means="no error at all: every step waits for its gradients; with a large model a "
        "collective may time out only because it takes too long",
        text="set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the fast network; measure the "
        "speed of every node and link (net.speed); raise --timeout to measure larger sizes",
        commands=(Command("preflight run --only net.speed,world.bandwidth -v", "the job"),),
        explains=(),
        status=Status.WARN,
        blame=(Blame.UNKNOWN, Blame.NETWORK),
    ),
}


@dataclass(frozen=True, slots=True)
class Reduced:
    """All-reduces of `bytes` bytes; `seconds` is the median of the repeats. `wrong` elements had
    another sum: the first of them, at `index`, was `got`."""

    bytes: int
    seconds: float
    wrong: int = 0
    index: int = 0
    got: float = 0.0
    wanted: float = 0.0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A size that was not tried: one all-reduce of `bytes` bytes would have taken `seconds`, judged
    by smaller ones; there were `within` for it."""

    bytes: int
    seconds: float
    within: float


def busbw(count: int, seconds: float, ranks: int) -> float:
    """GB/s that every rank had on its wire: S/t x 2(n-1)/n (nccl-tests, PERFORMANCE.md)."""
    return count / seconds * 2 * (ranks - 1) / ranks / 1e9 if seconds > 0 and ranks else 0.0


def weight(rank: int) -> int:
    """What a rank adds to each of its elements. Squares, so that a rank that counts twice is not
    made up for by its neighbours."""
    return (rank + 1) ** 2 % WEIGHTS


def all_reduce(
    ctx: Context,
    steps: Steps,
    repeats: Mapping[int, int],
    reduced: list[Reduced],
    device: Any = "cpu",
) -> LeftOut | None:
    """For each size in bytes: sum a pattern over all ranks and look at every element, which warms
    up as well, then time so many repeats, or as many as there is time for. Into `reduced`, so that
    an error leaves what came before it. The size for which there was no time, and none above it
    was tried; None where all were."""
    from statistics import median  # 5 ms that only workers pay

    import torch
    import torch.distributed as dist

    def timed() -> float:
        finish()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        finish()
        return time.perf_counter() - began

    def finish() -> None:
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()

    most = max(repeats) // 4
    period = torch.arange(PATTERN, dtype=torch.float32, device=device)
    whole = period.repeat(most // PATTERN + 1)[:most]
    space, room = torch.empty_like(whole), torch.empty_like(whole)
    weights = sum(weight(rank) for rank in range(ctx.world_size))
    best: dict[int, float] = {}
    for count, times in repeats.items():
        steps.at(f"all_reduce {size(count)}")
        one, within = expected_seconds(best, count), steps.left() * SHARE
        # the same on all ranks, or they would part
        agreed = torch.tensor([repeats_within(one, within, times)], device=device)
        dist.all_reduce(agreed, dist.ReduceOp.MIN)
        fit = int(agreed[0])
        if not fit:
            return LeftOut(count, round(one, 7), round(max(within, 0.0), 7))
        pattern, tensor, wanted = (t[: count // 4] for t in (whole, space, room))
        torch.add(pattern, weight(ctx.rank), out=tensor)
        first = timed()
        torch.mul(pattern, ctx.world_size, out=wanted).add_(weights)
        wrong, index, got, right = 0, 0, 0.0, 0.0
        if not torch.equal(tensor, wanted):
            off = tensor != wanted
            wrong, index = int(off.sum()), int(off.to(torch.int8).argmax())
            got, right = _finite(float(tensor[index])), float(wanted[index])
        tensor.zero_()  # sums of sums would grow beyond all bounds
        taken = [timed() for _ in range(fit - 1)]
        best[count] = min([first, *taken])
        seconds = round(median(taken or [first]), 7)
        reduced.append(Reduced(count, seconds, wrong, index, got, right))
    return None


def expected_seconds(best: Mapping[int, float], count: int) -> float:
    """Seconds that an all-reduce of so many bytes takes, by those of less: what the smallest takes
    it takes in any case, and from there on it is a straight line."""
    if not best:
        return 0.0
    least, most = min(best), max(best)
    slope = (best[most] - best[least]) / (most - least) if most > least else 0.0
    return best[most] + max(slope, 0.0) * (count - most)


def repeats_within(one: float, within: float, times: int) -> int:
    """How many there is time for, of one to look at and so many to time; what is not known is
    tried."""
    return max(min(times + 1, int(within / one)), 0) if one > 0 else times + 1


def _finite(number: float) -> float:
    return number if abs(number) <= LARGEST else LARGEST


def wrong_sums(world: World[Any], sums: Mapping[str, tuple[Reduced, ...]]) -> Iterator[Found]:
    """The ranks that got a wrong sum: known for certain, since the right one is known. Where the
    fault is: with the few that got it; if many did, or one of two nodes, one of those who sent."""
    first_wrong = of_each(sums, lambda reduced: next((r for r in reduced if r.wrong), None))
    wrong = {key: one for key, one in first_wrong.items() if one is not None}
    if not wrong:
        return
    few = len(wrong) * 2 <= len(sums) and not humanize.one_of_two(world, wrong)
    key, first = next(iter(wrong.items()))
    subjects = tuple(world.subject(k) for k in wrong)
    saw = (
        f"{humanize.ranks_of(world, [key])}: {first.wrong} of {first.bytes // 4} sums of "
        f"{size(first.bytes)} are wrong; number {first.index} is {first.got:g}, not "
        f"{first.wanted:g}"
    )
    if len(wrong) > 1:
        saw += f" · wrong on {plural(len(wrong), 'rank')} of {len(sums)}"
        if humanize.several(world):
            saw += f": {humanize.ranks_of(world, wrong)}"
    yield Found(
        "wrong-sum",
        subjects if few else (Subject(Kind.JOB), *subjects),
        saw=saw,
        expected="the exact sum: all numbers are whole and below 2^24",
        blame=Blame.NODE if few else Blame.UNKNOWN,
        confidence=Confidence.LIKELY if few else Confidence.POSSIBLE,
        alternatives=() if few else ("the memory of one rank that sends", "the library itself"),
        evidence=(key,),
    )


def slow_network(world: World[Any], left: Mapping[str, LeftOut]) -> Iterator[Found]:
    """That a size was left out since the network is slow. Where there was little time for other
    reasons it says nothing; who is slow is for those to say who look at single nodes and links."""
    if not left:
        return
    seconds = max(out.seconds for out in left.values())
    out = next(out for out in left.values() if out.seconds == seconds)
    rate = busbw(out.bytes, seconds, len(world.seen))
    if not 0 < rate < slow_pairs.BROKEN / 1e9:
        return
    within = min(out.within for out in left.values())
    several = humanize.several(world)
    yield Found(
        "slow",
        (Subject(Kind.JOB),),
        saw=f"an all-reduce of {size(out.bytes)} would take {duration(seconds)}, and was left out: "
        f"busbw {rate * 1000:.3g} MB/s judged by smaller ones",
        expected=f"less than {duration(within)}",
        blame=Blame.NETWORK if several else Blame.UNKNOWN,
        confidence=Confidence.POSSIBLE,
        alternatives=(_ONE, _BUSY) if several else (_BUSY,),
    )


_ONE = "one slow node or link that all wait for: see net.speed and world.bandwidth"
_BUSY = "the nodes are too busy"


def measured_allreduce(
    sums: Mapping[str, tuple[Reduced, ...]], left: Mapping[str, LeftOut], note: str = ""
) -> Measured:
    """The times of the slowest rank: latency of the smallest size, bandwidth of the largest, and
    what was left out."""
    # of what many have measured alike there is one
    done = {id(reduced): reduced for reduced in sums.values() if reduced}.values()
    if not done:
        return Measured()
    ranks = len(sums)
    seconds: dict[int, float] = {}
    for reduced in done:
        for r in reduced:
            seconds[r.bytes] = max(r.seconds, seconds.get(r.bytes, 0.0))
    least, most = min(seconds), max(seconds)
    bandwidth = busbw(most, seconds[most], ranks)
    wrong = any(r.wrong for reduced in done for r in reduced)
    far = "" if len({len(reduced) for reduced in sums.values()}) == 1 else " as far as they came"
    text = f"sums {'WRONG' if wrong else 'right'}{far}"
    if ranks > 1:
        text += f" · {size(least)} {latency(seconds[least])}"
        text += f" · {size(most)} {latency(seconds[most])}" if most != least else ""
    else:
        text += " · one rank: nothing was sent"
    if left:
        out = max(left.values(), key=lambda out: out.seconds)
        text += f" · {size(out.bytes)} left out: would take {duration(out.seconds)}"
    text += f" · busbw {bandwidth:.3g} GB/s" if ranks > 1 else ""
    return Measured(
        text + (f" · {note}" if note else ""),
        {
            "busbw_gbs": round(bandwidth, 3),
            "seconds": {str(count): s for count, s in seconds.items()},
        },
    )
