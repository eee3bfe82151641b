"""Do all ranks have the same work, and do they get to it: batches, lengths, memory, own code?

Level        deep
Looks at     of each rank of a rehearsed command: samples and elements of the batches that its
             DataLoader gave for its steps, what it has allocated on the GPU, and on the host the
             time in DDP's forward, from there to the optimizer, in the optimizer, and from there
             to the next forward; CPU time
Fails if     never: uneven work trains, too
Warns if     a rank has a quarter more samples per batch than most, or as many samples with a third
             more elements (longer sequences); a rank has 30 % and 1 GiB more on its GPU than most,
             and half of the GPU's memory; on the CPU, every rank spends 40 % of its usual step and
             30 ms in own code between the optimizer and the next forward, but for the DataLoader
Undecided    fewer than 8 batches; not a rehearsal (preflight rehearse -- CMD)
Not covered  data that comes from elsewhere than torch's DataLoader; padding (padded elements count
             as others); GPU utilisation, clocks and power; the GPU's own time of each part, and
             what .item() or synchronize() keeps it waiting
Seen as      no error at all: all ranks wait for the one with the most work; "CUDA out of memory" on
             one rank alone; a gradient that is not the mean over all samples
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from preflight.check import Context
from preflight.domains.job.frame import Frame
from preflight.domains.job.load import REHEARSAL, for_author, load_rank, rank_subject
from preflight.domains.job.step_parts import StepParts
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, rank_list, size
from preflight.model import (
    Confidence,
    Found,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)

CHECK = replace(REHEARSAL, required=False)

BATCHES = 8
"""Below that the last batch of an epoch, which may be smaller, says too much."""
SAMPLES, CONTENT = 1.25, 1.33
"""More than most by so much. A last batch that is smaller, or one sample more, stays below."""
SURE = 4.0
"""Standard errors by which the content of batches must differ: lengths vary by chance."""
SAME_STEPS = 0.8
"""Ranks that do other work, such as to evaluate, make other numbers of steps."""
MEMORY, MEMORY_LEAST, MEMORY_PART = 1.3, 1 << 30, 0.5
BLOCKED, BLOCKED_LEAST = 0.4, 0.03
"""Part of a usual step, and seconds of it, in which every rank does something else."""
MOST = 128
"""Ranks in the report."""
ROWS = 8
"""Ranks that have a row of the table: of more those with the longest steps."""

FINDINGS = {
    "batch-uneven": for_author(
        headline="the ranks have different amounts of work: {seen}",
        cause="a batch size that depends on the rank, data that is sorted by length before it is "
        "split, one rank with other files",
        means="no error at all: all ranks wait in every step for the one with the most work, and "
        "DDP weighs its samples less than those of the others",
        text="give all ranks the same batch size; shuffle before the data is split, or batch by "
        "length over all ranks",
        status=Status.WARN,
    ),
    "gpu-memory-uneven": for_author(
        headline="{at} uses more GPU memory than the others: {seen}",
        cause="buffers, logs or an evaluation that only this rank has, checkpoints that are loaded "
        "to GPU 0, longer samples",
        means="'CUDA out of memory' on this rank alone, while the others have room",
        text="load checkpoints with map_location='cpu'; put what only one rank needs on the CPU",
        status=Status.WARN,
    ),
    "step-blocked": for_author(
        headline="all ranks do something else in every step before they go on: {seen}",
        cause="a checkpoint, a log, tokenising or other work of the CPU in the training loop",
        means="no error at all: the GPUs idle meanwhile",
        text="keep {line!s} out of the loop: tokenise in workers of a DataLoader, save "
        "and log every so many steps or in a thread (torch.distributed.checkpoint.async_save)",
        status=Status.WARN,
    ),
}


@dataclass(frozen=True, slots=True)
class Work:
    """Of one rank. step: median seconds of a step; loader: part of the time in which it waited for
    data; summed: bytes that its collectives take per step; gpu, limit: bytes on its GPU."""

    rank: int | None
    parts: StepParts
    steps: int = 0
    step: float = 0.0
    loader: float = 0.0
    summed: float = 0.0
    gpu: int = 0
    limit: int = 0
    between: Frame | None = None
    asynchronous: bool = False
    """Its model is on a GPU, which may work while the host does something else."""


def observe(host: Host, ctx: Context) -> Work:
    seen = load_rank(host, ctx)
    if not seen.parts.batches and not seen.parts.steps:
        raise NotApplicable("no step with an optimizer of torch's, and no batch of a DataLoader")
    calls = sum(group.enqueued for group in seen.calls.groups)
    return Work(
        rank=seen.life.rank,
        parts=seen.parts,
        steps=seen.calls.steps,
        step=seen.pace.step,
        loader=seen.pace.loader,
        summed=seen.pace.mean_size * calls / max(1, seen.calls.steps),
        gpu=max((used for *_, used in seen.growth.samples), default=0),
        limit=seen.growth.gpu_limit,
        between=seen.pace.between,
        asynchronous=any(device != "cpu" for device in seen.backends.models),
    )


Rank = tuple[Subject, Work]


def judge(world: World[Work], expect: Expect) -> Iterator[Found]:
    ranks = [(rank_subject(here, seen.rank), seen) for here, seen in world.each()]
    yield from _batches(ranks)
    yield from _memory(ranks)
    yield from _blocked(ranks)


def _batches(ranks: Sequence[Rank]) -> Iterator[Found]:
    known = [(s, w) for s, w in ranks if w.parts.batches >= BATCHES and w.parts.size]
    steps = [work.steps for _, work in known]
    if len(known) < 2 or len(known) < len(ranks) or min(steps) < SAME_STEPS * max(steps):
        return
    if more := _above(known, lambda work: work.parts.size, SAMPLES):
        yield _uneven(known, more, "samples per batch", lambda work: work.parts.size)
        return
    noise = SURE * max(work.parts.error for _, work in known)
    if more := _above(known, lambda work: work.parts.content, max(CONTENT, 1 + noise)):
        yield _uneven(known, more, "elements per sample", lambda work: work.parts.content)


def _above(ranks: Sequence[Rank], of: Callable[[Work], float], times: float) -> list[Rank]:
    """Those that have so many times as much as most, or as the least where most have that."""
    values = [of(work) for _, work in ranks]
    usual = median(values) if len(values) > 2 else min(values)
    low = usual if max(values) > times * usual else min(values)
    return [(s, w) for s, w in ranks if low and of(w) > times * low]


def _uneven(
    ranks: Sequence[Rank], more: Sequence[Rank], what: str, of: Callable[[Work], float]
) -> Found:
    rest = [work for subject, work in ranks if subject not in {s for s, _ in more}]
    numbers = rank_list(n for subject, _ in more for n in subject.ranks)
    worst = max(more, key=lambda rank: of(rank[1]))[1]
    have = "has" if len(more) == 1 else "have"
    return Found(
        "batch-uneven",
        tuple(subject for subject, _ in more),
        saw=f"{numbers} {have} {of(worst):.4g} {what}, the others {median(map(of, rest)):.4g} · "
        f"latest shape {worst.parts.shape}, elsewhere {rest[0].parts.shape}",
        expected="about as much on every rank",
        confidence=Confidence.CERTAIN,
    )


def _memory(ranks: Sequence[Rank]) -> Iterator[Found]:
    known = [(s, w) for s, w in ranks if w.gpu and w.limit]
    if len(known) < 3:
        return
    usual = median(work.gpu for _, work in known)
    more = [
        (s, w)
        for s, w in known
        if w.gpu > MEMORY * usual and w.gpu - usual > MEMORY_LEAST and w.gpu > MEMORY_PART * w.limit
    ]
    if more:
        worst = max(more, key=lambda rank: rank[1].gpu)[1]
        yield Found(
            "gpu-memory-uneven",
            tuple(subject for subject, _ in more),
            saw=f"{size(worst.gpu)} of {size(worst.limit)}, the others {size(int(usual))}",
            expected="about as much on every rank",
            confidence=Confidence.CERTAIN,
        )


def _blocked(ranks: Sequence[Rank]) -> Iterator[Found]:
    """Of every rank: where only one does so, the others wait for it (job.pace)."""
    if not ranks or not all(_is_blocked(work) for _, work in ranks):
        return
    least = min((work for _, work in ranks), key=lambda work: work.parts.between)
    line = next((str(work.between) for _, work in ranks if work.between), "")
    yield Found(
        "step-blocked",
        tuple(subject for subject, _ in ranks),
        saw=f"{duration(least.parts.between)} of {duration(least.step)} per step between the "
        "optimizer and the next forward" + (f", mostly at {line}" if line else ""),
        expected="most of a step in forward, backward and optimizer",
        confidence=Confidence.LIKELY,
        fields={"line": line or "other work"},
    )


def _is_blocked(work: Work) -> bool:
    between = work.parts.between
    enough = work.steps >= BATCHES and not work.asynchronous
    return enough and between >= BLOCKED_LEAST and between >= BLOCKED * work.step > 0


COLUMNS = ("rank", "step", "data", "forward", "backward", "optimizer", "other", "CPU", "batch")


def _table(works: Sequence[Work]) -> list[str]:
    """A row per rank: times per step, CPU time of it, and the shape of the latest batch."""
    told = sorted((w for w in works if w.parts.steps and w.step), key=lambda w: -w.step)[:ROWS]
    rows: list[tuple[str, ...]] = [COLUMNS]
    for work in sorted(told, key=lambda work: work.rank or 0):
        parts, steps = work.parts, work.parts.steps
        each = (
            *(work.step, work.loader * work.step, parts.forward / steps, parts.backward / steps),
            *(parts.optimizer / steps, parts.between, parts.cpu),
        )
        times = [duration(took) if took else "-" for took in each]
        rank = "?" if work.rank is None else str(work.rank)
        rows.append((rank, *times, parts.shape.replace(", ", "x") or "-"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    more = len(works) - len(told)
    return [*lines, *([f"and {more} more"] if more else [])] if told else []


def measured(world: World[Work]) -> Measured:
    works = [work for _, work in world.each()]
    if not works:
        return Measured()
    parts = [work.parts for work in works if work.parts.steps]
    told: list[str] = []
    values: dict[str, Any] = {}
    if sizes := [work.parts.size for work in works if work.parts.batches]:
        low, high = min(sizes), max(sizes)
        told.append(
            f"{low:.4g} samples per batch"
            if low == high
            else f"{low:.4g}-{high:.4g} samples per batch"
        )
        values["samples_a_batch"] = [round(low, 2), round(high, 2)]
    if parts:
        each = {
            name: median(getattr(part, name) / part.steps for part in parts)
            for name in ("forward", "backward", "optimizer")
        }
        values |= {f"{name}_s": round(took, 6) for name, took in each.items()}
    if summed := median(work.summed for work in works):
        told.append(f"{size(int(summed))} in collectives per step")
        values["collective_bytes_a_step"] = int(summed)
    rows = {str(w.rank): _row(w) for w in works if w.rank is not None}
    values["ranks"] = dict(list(rows.items())[:MOST])
    return Measured(" · ".join(told), values, notes=tuple(_table(works)))


def _row(work: Work) -> dict[str, Any]:
    steps = max(1, work.parts.steps)
    each = {name: getattr(work.parts, name) / steps for name in ("forward", "backward")}
    each |= {"optimizer": work.parts.optimizer / steps, "step": work.step}
    each |= {"data": work.loader * work.step, "other": work.parts.between, "cpu": work.parts.cpu}
    told = {f"{name}_s": round(took, 6) for name, took in each.items()}
    return {**told, "batch": work.parts.shape, "gpu_bytes": work.gpu}
