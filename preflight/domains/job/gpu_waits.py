"""Ranks that wait for their GPU while another one is elsewhere, where their stacks are all that is
known. Pure.

What NCCL waits for it waits for on the GPU. The host goes on until it needs a value: so a rank that
waits for others stands at its own `.item()`, and no call of torch.distributed is to be seen.
"""

from __future__ import annotations

from preflight.domains.job.hang import Hang, frame_of, location
from preflight.domains.job.wait_graph import LOADER, OWN, UNKNOWN
from preflight.humanize import duration, rank_list
from preflight.model import Confidence, Found

STILL = 3.0
"""Seconds without a sign of life after which one counts as standing."""


def elsewhere(hang: Hang) -> Found | None:
    """Those that stand somewhere else while all others wait for their GPUs."""
    calls = hang.calls
    if len(calls) < 2 or any(seen.groups or seen.ended or seen.moves for seen in calls.values()):
        return None
    waiting = [rank for rank, seen in calls.items() if seen.gpu_wait]
    others = {rank: seen for rank, seen in calls.items() if rank not in waiting}
    standing = (OWN, LOADER, UNKNOWN)
    if not waiting or not others or any(seen.at not in standing for seen in others.values()):
        return None
    if any(seen.still < STILL for seen in others.values()):
        return None
    rank, first = next(iter(others.items()))
    seen = calls[waiting[0]]
    verb = "waits for its GPU" if len(waiting) == 1 else "wait for their GPUs"
    has = "has" if len(others) == 1 else "have"
    return Found(
        "rank-elsewhere",
        hang.subjects(others),
        saw=f"{rank_list(others)} {has} done nothing for {duration(first.still)} {location(first)} "
        f"· {rank_list(waiting)} {verb} {location(seen)} ({seen.gpu_wait})",
        expected="every rank at the same line, or progress",
        confidence=Confidence.LIKELY,
        alternatives=("a step that takes longer than this look",),
        fields={"rank": str(rank), "line": str(frame_of(first) or "that line")},
    )
