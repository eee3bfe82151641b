"""Who holds up a job of NCCL's, by what its RAS service says: processes that it does not reach, and
ranks that have launched other collectives than the rest. Pure.

RAS counts what was launched, by operation; a snapshot of a job that goes on shows differences, too.
They are reported only where nothing else moves, or where they stayed the same between two answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.domains.job.hang import Hang, at_frame, frame_of, mismatch_fields
from preflight.domains.job.nccl_ras import Communicator, Counts, Member, Ras
from preflight.humanize import duration
from preflight.model import Confidence, Found, Subject

MARGIN = 2.0
"""Seconds less than the whole look for which a late rank must have done nothing to be called stuck:
the first look at it is later than the first answer of RAS."""
LONG = 10.0
"""Seconds for which a difference must have lasted to be worth a word while the late rank works, as
in hang_causes.py."""
NAMED = 4
"""Processes named in a sentence."""

LIKELY = Confidence.LIKELY


def from_ras(hang: Hang) -> Found | None:
    """The one thing that says most: lost processes, else the largest communicator that differs."""
    told = next((seen.ras for seen in hang.calls.values() if seen.ras is not None), None)
    if told is None or hang.failed or not (hang.stopped or told.seconds):
        return None
    lost = [m for c in told.communicators for m in c.odd if m.state] + list(told.lost)
    if lost:
        return _unreachable(hang, lost) if hang.stopped or told.seconds >= LONG else None
    for one in sorted(told.communicators, key=lambda c: -c.size):
        late = all(_launched_less(member.counts, one.usual) for member in one.odd)
        found = _late(hang, told, one) if late else _launched_others(hang, one)
        if found:
            return found
    return None


def _launched_less(counts: Counts, usual: Counts) -> bool:
    """Whether of no operation more was launched than is usual."""
    most = dict(usual)
    return all(n <= most.get(op, 0) for op, n in counts)


def _unreachable(hang: Hang, lost: Sequence[Member]) -> Found | None:
    named = list(dict.fromkeys(f"{m}, {'dead' if m.state == 'dead' else 'silent'}" for m in lost))
    more = f"; and {len(named) - NAMED} more" * (len(named) > NAMED)
    return Found(
        "rank-unreachable",
        _subjects(hang, lost),
        saw=f"NCCL's RAS does not reach {'; '.join(named[:NAMED])}{more}",
        expected="an answer of every process of the job",
        confidence=LIKELY,
    )


def _late(hang: Hang, told: Ras, one: Communicator) -> Found | None:
    """They have launched less than the others, who wait for them."""
    first = one.odd[0]
    mine = hang.calls.get(first.of) if first.of is not None else None
    still = mine is not None and mine.still >= mine.seconds - MARGIN
    stuck = hang.stopped or still
    if not stuck and told.seconds < LONG:
        return None
    where = f" · rank {first.of} is {at_frame(frame_of(mine))}" if mine is not None else ""
    since = f", unchanged for {duration(told.seconds)}" if told.seconds else ""
    return Found(
        "rank-stuck" if stuck else "rank-busy",
        _subjects(hang, one.odd),
        saw=f"NCCL's RAS: {_describe_counts(one)}{since}{where}",
        expected="as many launched by every rank",
        confidence=LIKELY,
        fields={
            "rank": str(first.of if first.of is not None else first.rank),
            "line": str((frame_of(mine) if mine is not None else None) or "that line"),
        },
    )


def _launched_others(hang: Hang, one: Communicator) -> Found | None:
    """Some have launched what others have not."""
    line = next((f for m in one.odd if (f := _frame(hang, m))), "that line")
    return Found(
        "collective-mismatch",
        _subjects(hang, one.odd),
        saw=f"NCCL's RAS: {_describe_counts(one)}",
        expected="one order of calls on all ranks",
        confidence=LIKELY,
        fields=mismatch_fields(line),
    )


def _frame(hang: Hang, member: Member) -> str:
    mine = hang.calls.get(member.of) if member.of is not None else None
    frame = frame_of(mine) if mine is not None else None
    return str(frame) if frame is not None else ""


def _describe_counts(one: Communicator) -> str:
    """`rank 1 (pid 7 on 10.0.0.2) has launched 41 AllReduce, the others 42`."""
    rows: dict[Counts, list[str]] = {}
    for member in one.odd:
        rows.setdefault(member.counts, []).append(str(member))
    told = []
    for counts, members in list(rows.items())[:NAMED]:
        named = ", ".join(members[:NAMED]) + f" and {len(members) - NAMED} more" * (
            len(members) > NAMED
        )
        verb = "has" if len(members) == 1 else "have"
        told.append(f"{named} {verb} launched {_list_counts(counts)}")
    return f"{'; '.join(told)}, the others {_list_counts(one.usual)}"


def _list_counts(counts: Counts) -> str:
    return " and ".join(f"{n:,} {op}" for op, n in counts) or "none"


def _subjects(hang: Hang, members: Sequence[Member]) -> tuple[Subject, ...]:
    """Those that are here; where all are elsewhere, the rank that reported them."""
    here = sorted({m.of for m in members if m.of is not None and m.of in hang.keys})
    return hang.subjects(here or list(hang.calls)[:1])
