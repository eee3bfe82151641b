"""What NCCL's RAS service says of a job: processes that it does not reach, and ranks that have
launched other collectives than the rest of their communicator. Pure.

What is made of it is ras_findings.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from preflight.frozen import dataclass

Counts = tuple[tuple[str, int], ...]
"""Operation and how often it was launched."""


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a communicator. rank: its number there, -1 unknown; pid and host as RAS has them.

    state  "" where it answers, "dead" or "silent" where it does not
    of     its rank of the whole job, None where that is not known
    """

    rank: int
    pid: int = 0
    host: str = ""
    counts: Counts = ()
    state: str = ""
    of: int | None = None

    def __str__(self) -> str:
        place = f"pid {self.pid} on {self.host}" if self.pid else "a process unknown"
        return f"rank {self.of} ({place})" if self.of is not None else place


@dataclass(frozen=True, slots=True)
class Communicator:
    """One in which ranks differ: `usual` is what most have launched, `odd` who has not."""

    name: str
    size: int
    usual: Counts
    odd: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Ras:
    """An answer. lost: processes that it does not reach, where it names no communicator; seconds:
    for how long it has been the same."""

    version: str
    communicators: tuple[Communicator, ...] = ()
    lost: tuple[Member, ...] = ()
    seconds: float = 0.0


def diverging(
    name: str, size: int, here: Sequence[Member], missing: Iterable[Member]
) -> Communicator | None:
    """A communicator with the ranks that differ from most; in a tie those are odd that have
    launched less. None where all are alike and nobody is lost."""
    votes = Counter(member.counts for member in here)
    most = max(votes.values(), default=0)
    usual = max((c for c, n in votes.items() if n == most), key=_total, default=())
    odd = [member for member in here if member.counts != usual]
    differ = {op for member in odd for op, n in member.counts if (op, n) not in usual}
    odd = [replace(m, counts=tuple(c for c in m.counts if c[0] in differ)) for m in odd]
    # one that answers and is none of them any more has left it, which is no fault
    odd += [member for member in missing if member.state]
    kept = tuple(c for c in usual if c[0] in differ)
    return Communicator(name, size, kept, tuple(odd)) if odd else None


def _total(counts: Counts) -> int:
    return sum(n for _, n in counts)


def with_ranks(told: Ras, world: int, ranks: dict[tuple[int, str], int]) -> Ras:
    """With the ranks of the whole job: those of a communicator of all, and of the processes (pid
    and host) that are known."""

    def known(member: Member, size: int) -> Member:
        of = ranks.get((member.pid, member.host))
        if of is None and size == world and 0 <= member.rank < world:
            of = member.rank
        return replace(member, of=of)

    found = [
        replace(one, odd=tuple(known(member, one.size) for member in one.odd))
        for one in told.communicators
    ]
    lost = tuple(known(member, 0) for member in told.lost)
    return replace(told, communicators=tuple(found), lost=lost)


def unchanged(before: Ras | None, after: Ras | None, seconds: float) -> Ras | None:
    """What two answers say alike."""
    if before is None or after is None:
        return None
    same = tuple(c for c in after.communicators if c in before.communicators)
    lost = tuple(m for m in after.lost if m in before.lost)
    return replace(after, communicators=same, lost=lost, seconds=seconds)
