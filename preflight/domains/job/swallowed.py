"""Exceptions that one rank has caught, and went on, where the ranks are apart. Pure.

What all ranks catch is how the program works. What one has caught alone is likely why it calls
something else than the others: it has left out the rest of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from preflight.domains.job.gpu_memory import brief
from preflight.domains.job.hang import Hang
from preflight.domains.job.rank_exits import COMPLAINT, RAISED
from preflight.domains.job.record import Caught
from preflight.humanize import plural
from preflight.model import Confidence, Found

APART = frozenset(
    {"collective-mismatch", "peer-mismatch", "data-uneven", "rank-stuck", "order-swapped"}
)
"""Findings that an exception may be behind."""


def with_swallowed(hang: Hang, found: Found) -> Found:
    """The finding, or the exception that is behind it."""
    if found.code not in APART:
        return found
    named = {rank for subject in found.subjects for rank in subject.ranks}
    alone = dict(_alone(hang))
    # the minority is named; where a rank has skipped a call it may be the others that look odd
    ranks = [rank for rank in alone if rank in named or found.code == "collective-mismatch"]
    if len(ranks) != 1:
        return found
    (rank,), caught = ranks, alone[ranks[0]]
    where = f" at {caught.frame} in {caught.frame.function}" if caught.frame else ""
    by = f", caught at {caught.handler}" if caught.handler else ""
    often = f" ({plural(caught.times, 'time')})" if caught.times > 1 else ""
    state = "is handling" if caught.now else "has caught"
    return replace(
        found,
        code="exception-swallowed",
        subjects=hang.subjects([rank]),
        saw=f"rank {rank} {state} {brief(caught.text)}{where}{by}{often}, which no other rank has"
        f" · {found.saw}",
        expected="an exception that ends the rank, or that all ranks handle together",
        confidence=Confidence.LIKELY,
        blame=None,
        alternatives=(),
        fields={"line": str(caught.handler or caught.frame or "that line")},
    )


def _alone(hang: Hang) -> Iterator[tuple[int, Caught]]:
    """Of each rank the first exception that no other has caught as often."""
    counts = {
        rank: {(str(c.frame), str(c.handler)): c.times for c in seen.caught}
        for rank, seen in hang.calls.items()
    }
    for rank, seen in hang.calls.items():
        others = [counts[other] for other in counts if other != rank]
        for caught in seen.caught:
            # what ended it may be noted, too; what says that a peer is gone is no cause
            ending = seen.ended == RAISED and caught.handler is None
            if ending or COMPLAINT.search(caught.text):
                continue
            key = str(caught.frame), str(caught.handler)
            if others and all(of.get(key, 0) < caught.times for of in others):
                yield rank, caught
                break
