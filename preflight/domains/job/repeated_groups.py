"""A process group that is made again and again for the same ranks, used once or so and never
destroyed. Pure.

torch keeps every group until the end: connections and threads of Gloo, a communicator with buffers
on the GPU of NCCL. So each step is slower than the one before, until something runs out.
"""

from __future__ import annotations

from statistics import median

from preflight.domains.job.frame import Frame
from preflight.domains.job.hang import Hang
from preflight.domains.job.record import Calls
from preflight.frozen import dataclass

MANY, STEPS, CALLS = 16, 16, 4
"""Groups of one line for the same ranks, steps of the optimizer, both at least, and calls in one
such group at most, in the median: who makes some for good makes fewer, and uses them."""


@dataclass(frozen=True, slots=True)
class RepeatedGroups:
    """The user's line that makes them, for which ranks, how many are known of the rank that has
    most, and after how many steps; `by`: the ranks of which this was seen."""

    frame: Frame
    ranks: tuple[int, ...]
    many: int
    steps: int
    by: tuple[int, ...]


def repeated_groups(hang: Hang) -> RepeatedGroups | None:
    found = {rank: one for rank, seen in hang.calls.items() if (one := _most(seen)) is not None}
    if not found:
        return None
    (frame, ranks), many = max(found.values(), key=lambda of: of[1])
    by = tuple(sorted(rank for rank, (of, _) in found.items() if of[0] == frame))
    return RepeatedGroups(frame, ranks, many, max(hang.calls[r].steps for r in by), by)


def _most(seen: Calls) -> tuple[tuple[Frame, tuple[int, ...]], int] | None:
    """The line that makes most groups for the same ranks; older torch does not tell these."""
    if seen.steps < STEPS:
        return None
    used: dict[tuple[Frame, tuple[int, ...]], list[int]] = {}
    for group in seen.groups:
        if group.made is not None and group.made.own and group.ranks:
            used.setdefault((group.made, group.ranks), []).append(group.enqueued)
    most = max(used, key=lambda of: len(used[of]), default=None)
    if most is None or len(used[most]) < MANY or median(used[most]) > CALLS:
        return None
    return most, len(used[most])
