"""Worlds for job.collectives in which NCCL's RAS service has told of the job. No real NCCL was
asked: the answers are made of its documentation."""

from __future__ import annotations

from dataclasses import replace

from preflight.domains.job.nccl_ras import Communicator, Member, Ras
from preflight.domains.job.record import Calls
from preflight.model import Status
from support.cases import Case
from support.rehearsed_worlds import BEHIND, GOES, WAITS, job, over, rank

USUAL = (("AllReduce", 42),)
LATE = Member(2, 7002, "10.0.0.1", (("AllReduce", 41),), of=2)
OTHER = Member(1, 7001, "10.0.0.1", (("AllReduce", 41), ("Broadcast", 1)), of=1)
GONE = Member(5, 8001, "10.0.0.2", state="dead", of=5)
FAR = Member(6, 8002, "10.0.0.2", (("AllReduce", 41),), of=6)
SPINS = rank("own", still=0.1, quiet=6.0, cpu=1.0, seconds=6.0)
"""Waits for its GPU, and burns a CPU for it."""
STANDS = rank("own", line=99, still=5.0, quiet=5.0, cpu=0.0, seconds=6.0)


def told(*odd: Member, seconds: float = 5.0, usual: tuple[tuple[str, int], ...] = USUAL) -> Ras:
    return Ras("2.28.9", (Communicator("0xc0ffee", 8, usual, odd),), seconds=seconds)


def said(found: Ras, *ranks: Calls, why: str = "time") -> dict[str, Calls]:
    """By the first rank of the node."""
    return job(replace(ranks[0], ras=found), *ranks[1:], why=why)


STUCK = (SPINS, SPINS, STANDS, SPINS)


def _finds(
    code: str, name: str, saw: dict[str, Calls], of: int, status: Status = Status.FAIL
) -> Case:
    return Case(name, saw, code, status=status, subject=f"n1 · rank {of}")


CASES = (
    Case("RAS: all launched as much", said(Ras("2.28.9", seconds=5.0), *STUCK)),
    Case("RAS: one is behind for a moment", said(told(LATE, seconds=0.0), GOES, GOES, GOES)),
    Case("RAS: one works for a while", said(told(LATE), SPINS, SPINS, GOES, SPINS)),
    Case("RAS: lost while it goes on", over("time", replace(GOES, ras=told(GONE)), GOES)),
    _finds("rank-stuck", "RAS: behind, and still", said(told(LATE), *STUCK), 2),
    _finds(
        "rank-busy",
        "RAS: behind, and works for long",
        said(told(LATE, seconds=20.0), SPINS, SPINS, GOES, SPINS),
        2,
        Status.WARN,
    ),
    _finds("rank-stuck", "RAS: behind elsewhere", said(told(FAR), WAITS, WAITS, why="stuck"), 0),
    _finds(
        "collective-mismatch",
        "RAS: launched something else",
        said(told(OTHER, usual=(("AllReduce", 42), ("Broadcast", 0))), *STUCK),
        1,
    ),
    _finds(
        "rank-unreachable",
        "RAS: a process is gone",
        said(told(GONE), WAITS, BEHIND, WAITS, why="stuck"),
        0,
    ),
    _finds(
        "rank-unreachable",
        "RAS: processes that answer nothing",
        said(Ras("2.24.3", lost=(replace(GONE, state="silent", of=None),)), WAITS, why="stuck"),
        0,
    ),
)
