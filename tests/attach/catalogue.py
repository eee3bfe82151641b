"""Jobs that hang or run, and what `preflight attach` must say of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rehearse.catalogue import SCRIPTS as REHEARSED

SCRIPTS = Path(__file__).parent / "scripts"
RANKS, COLLECTIVES = "job.ranks", "job.collectives"
STANDALONE = ("{torchrun}", "--standalone", "--nproc-per-node={nproc}")
STATIC = (
    *("{torchrun}", "--nnodes=2", "--node-rank=0", "--nproc-per-node={nproc}"),
    *("--master-addr=127.0.0.1", "--master-port={port}"),
)
C10D = (
    *("{torchrun}", "--nnodes=2", "--nproc-per-node={nproc}", "--rdzv-backend=c10d"),
    *("--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=seven"),
)


@dataclass(frozen=True)
class Row:
    """A job and what must be said of it.

    code     of the one finding of this status; none: nothing fails
    ranks    of which its subjects must be; none: it is about no rank
    says     words that must stand in what it saw
    until    what comes first: "planted" (the script says so), "port" (somebody listens), "start"
    settle   seconds from then until it is looked at
    """

    name: str
    script: Path
    nproc: int = 2
    launcher: tuple[str, ...] = STANDALONE
    code: str = ""
    status: str = "fail"
    check: str = COLLECTIVES
    ranks: tuple[int, ...] = ()
    says: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    settle: float = 4.0
    until: str = "planted"


def of(script: str) -> Path:
    """A script of this catalogue, or of that of the rehearsals."""
    here = SCRIPTS / f"{script}.py"
    return here if here.exists() else REHEARSED / f"{script}.py"


def waits(name: str, launcher: tuple[str, ...], code: str, *says: str, **more: object) -> Row:
    """A job that waits for somebody who is not there: from then on for longer than it may take."""
    told = {"check": RANKS, "until": "port", "settle": 8.0, "script": of("joins")} | more
    return Row(name, launcher=launcher, code=code, says=says, **told)  # type: ignore[arg-type]


def hangs(name: str, script: str, nproc: int, code: str, *ranks: int, says: str = "") -> Row:
    return Row(name, of(script), nproc, code=code, ranks=ranks, says=(says,) if says else ())


MISMATCH = "collective-mismatch"
FAULTS = (
    waits(
        "rendezvous static", STATIC, "rendezvous-incomplete", "1 of 2 nodes is here", "rank 1 is"
    ),
    waits("rendezvous c10d", C10D, "rendezvous-incomplete", "1 of 2 nodes is here"),
    waits(
        "init with a missing rank",
        ("bash", str(SCRIPTS / "two_of_three.sh"), "{port}", "{python}"),
        "rank-absent",
        "2 of 3 ranks are here",
        "rank 2 is missing",
        settle=12.0,
        ranks=(2,),
    ),
    hangs("mismatch of collectives", "op_differs", 4, MISMATCH, 2, says="broadcast"),
    hangs("a sleep on one rank", "sleeps_before_barrier", 2, "rank-stuck", 0, says="sleeps"),
    hangs("a DataLoader worker stuck", "loader_hangs", 2, "loader-stuck", 1),
    hangs("a swallowed exception", "swallows", 3, MISMATCH, 1, says="broadcast"),
    hangs("a subgroup", "subgroup_differs", 4, MISMATCH, 2, says="all_gather"),
    hangs("a barrier that one rank does not call", "barrier_on_some", 3, MISMATCH, 2),
    Row(
        *("the others wait for their GPU", of("waits_for_gpu")),
        code="rank-elsewhere",
        status="warn",
        ranks=(1,),
        says=("rank 0 waits for its GPU", "waits_for_gpu.py", "(.item())"),
    ),
    hangs("one rank stopped", "stopped", 3, "rank-stuck", 2, says="stopped by a signal"),
)
HEALTHY = (
    Row("training goes on", of("joins")),
    Row("all wait for their GPU", of("waits_for_gpu"), args=("both",)),
    Row("one slow rank", of("joins"), args=("2",)),
    Row("a start-up of 3 s", of("joins"), until="start", settle=3.0),
)
