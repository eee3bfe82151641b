"""A barrier that all ranks call again and again within a step, as tracing or debugging leaves it
behind. Pure.

Every one of them makes all ranks wait for whoever is slowest at that moment, where one wait in a
step would even that out; the collectives of a step wait for each other by themselves.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from preflight.domains.job.frame import Frame
from preflight.domains.job.hang import Hang
from preflight.domains.job.record import Calls, Collective
from preflight.frozen import dataclass

BARRIERS = ("barrier", "all_reduce_barrier")
"""Gloo's name of it, and that of NCCL's flight recorder."""
MANY, STEPS, STRETCHES = 8.0, 5, 2
"""Calls of one line in a step, steps of the optimizer, and stretches between two other collectives,
at least: an evaluation with a barrier after each batch is one long stretch between steps."""


@dataclass(frozen=True, slots=True)
class RepeatedBarrier:
    """The line, about how often in a step of the optimizer, and the ranks that call it so."""

    frame: Frame
    in_a_step: float
    ranks: tuple[int, ...]


def repeated_barrier(hang: Hang) -> RepeatedBarrier | None:
    """The line whose barrier is called most often in a step, if that is often on every rank."""
    found: dict[Frame, dict[int, float]] = {}
    for members in hang.groups.values():
        for rank, group in members.items():
            for frame, often in _often(hang.calls[rank], group.calls, group.completed):
                of = found.setdefault(frame, {})
                of[rank] = max(of.get(rank, 0.0), often)
    whole = {f: of for f, of in found.items() if len(of) == len(hang.calls)}
    if not whole:
        return None
    frame = max(whole, key=lambda f: min(whole[f].values()))
    return RepeatedBarrier(frame, min(whole[frame].values()), tuple(sorted(whole[frame])))


def _often(
    seen: Calls, calls: tuple[Collective, ...], completed: int
) -> Iterator[tuple[Frame, float]]:
    """By the share that a line has of the latest calls, as far as that goes for all of them."""
    if seen.steps < STEPS or not calls:
        return
    stretches = [
        Counter(call.frame for call in run if call.frame is not None and call.frame.own)
        for is_barrier, run in itertools.groupby(calls, lambda c: c.op in BARRIERS)
        if is_barrier
    ]
    for frame in {frame for stretch in stretches for frame in stretch}:
        long = [stretch[frame] for stretch in stretches if stretch[frame] >= MANY]
        often = sum(stretch[frame] for stretch in stretches) / len(calls) * completed / seen.steps
        if len(long) >= STRETCHES and often >= MANY:
            yield frame, often
