"""job.ranks: the first end that is nobody's consequence is named, and no other; nobody where all is
well or was interrupted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import job_ranks
from preflight.domains.job.joining import LAUNCHER, RANK, Joining
from preflight.domains.job.record import (
    NO_PTRACE,
    NO_PYSPY,
    NOT_IMPORTED,
    WENT,
    Calls,
    End,
    Frame,
    HeldStore,
    Joins,
    Life,
    RehearsalRecord,
    Rehearsed,
    Uncaught,
    WatchedCommand,
)
from preflight.host import Host
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Missing,
    Node,
    NotApplicable,
    Status,
    Topology,
)
from preflight.serde import encode

conforms(job_ranks)

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
PLAIN = ("python3.11", "train.py", "--name", "a b")
RANK_UNSET = "ValueError: Error initializing torch.distributed using env:// rendezvous: "
RANK_UNSET += "environment variable RANK expected, but not set"
CMD = ("torchrun", "--nproc-per-node", "4", "train.py")
STEP = Frame("train.py", 31, "step", own=True)
INNER = Frame("/usr/lib/python3/json/decoder.py", 355, "raw_decode")
PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:34567"
GAVE_UP = "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 4000 ms"
RELEASED = (
    "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting "
    "for send/recv from rank 0. Please check rank 0 logs for faulty rank. Original exception: "
    "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:13027"
)
LATE = "RuntimeError: [x.cc:78] Timed out waiting 1800000ms for recv operation to complete"
SHORT = LATE.replace("1800000", "8000")
STORE = "DistStoreError: Timed out after 601 seconds waiting for clients. 2/3 clients joined."
KEYS = "DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cpu//0/2"
MODEL = "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params"
OTHER = "ConnectionResetError: [Errno 104] Connection reset by peer"
IN_USE = "DistNetworkError: The server socket has failed to listen on any local network address. "
IN_USE += "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, in use"
PAIR = "RuntimeError: [enforce fail at /a/gloo/transport/tcp/pair.cc:456] "
MISFIT = f"{PAIR}op.preamble.length <= op.nbytes. 36 vs 4. "
REMOTE = (
    "DistBackendError: NCCL error: remote process exited or there was a network error, NCCL "
    "version 2.28.9 ncclRemoteError: A call failed possibly due to a network error or a remote "
    "process exiting prematurely. Last error: socketProgress: Connection closed by remote peer"
)
MEMORY = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity "
    "of 31.36 GiB of which 471.69 MiB is free. Including non-PyTorch memory, this process has "
    "{own} GiB memory in use. {others}Of the allocated memory {tensors} GiB is allocated by "
    "PyTorch, and {pieces} GiB is reserved by PyTorch but unallocated. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html)"
)
ASSERTED = (
    "AcceleratorError: CUDA error: device-side assert triggered Search for `cudaErrorAssert' in "
    "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information. "
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace "
    "below might be incor"
)
FORK = "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed."


def end(how: str, at: float = 100.0, code: int | None = None, text: str = "", *of: Frame) -> End:
    return End(how, at, code, text, of)


def raised(text: str = "ValueError: bad batch", at: float = 100.0, *of: Frame) -> End:
    return end("raised", at, 1, text, *(of or (STEP,)))


def told(at: float = 100.2, text: str = PEER) -> End:
    """Of a rank whose peer is gone."""
    return end("raised", at, 1, text, Frame("train.py", 33, "step", own=True))


TERM = end("vanished", 100.5, -15)


def busy(ago: float, *, open: bool = False) -> End:
    """Ended by the launcher; `ago` seconds before it was at something."""
    return replace(TERM, last=(INNER, STEP), ago=ago, open=open)


def job(
    *ends: End | None, exit: int | None = 1, why: str = "ended", over: float = 0.0, **more: object
) -> dict[str, Life]:
    """One life a rank, on one node."""
    command = WatchedCommand(CMD, exit, why, 12.1, over)
    made = {
        f"n1/{rank}": Life(command, rank, len(ends), len(ends), 1000 + rank, joined=True, end=each)
        for rank, each in enumerate(ends)
    }
    return {key: replace(life, **more) for key, life in made.items()}  # type: ignore[arg-type]


def running(*ends: End | None, why: str = "time", **more: object) -> dict[str, Life]:
    return job(*ends, exit=None, why=why, **more)


def but(lives: dict[str, Life], number: int, **changes: object) -> dict[str, Life]:
    key = f"n1/{number}"
    return lives | {key: replace(lives[key], **changes)}  # type: ignore[arg-type]


WELL = end("exited", 100.0, 0)
DONE = end("exited", 100.0)
TWO = Topology(size=8, nodes=(Node("n1", (0, 1, 2, 3)), Node("n2", (4, 5, 6, 7))))

HEALTHY = (
    Case("all run", running(None, None, None, None)),
    Case("all ended well", job(WELL, WELL, WELL, exit=0)),
    Case("ended, their status unknown", job(DONE, DONE, exit=0)),
    Case("ended with os._exit(0)", job(end("vanished", 99, 0), WELL, exit=0)),
    Case("vanished, and the command is content", job(end("vanished", 99), WELL, exit=0)),
    Case("one is done before the others", running(WELL, None, None)),
    Case("three are done before the last", running(WELL, WELL, WELL, None, why="steps")),
    Case("interrupted", running(raised("KeyboardInterrupt: "), TERM, why="interrupted", over=9.0)),
    Case("killed by the user's Ctrl-C", running(TERM, TERM, why="interrupted", over=9.0)),
    Case(
        "cut short at once",
        {"n1/0": Life(WatchedCommand(CMD, None, "interrupted", 0.1), watched="")},
    ),
    Case(
        "one process",
        {"n1/0": Life(WatchedCommand(CMD, None, "time", 30.0), pid=5, rank=0, world=1)},
    ),
    Case("seen from outside", running(None, None, watched="outside", starting=3.0)),
    Case(
        "a slow start when time is up",
        running(None, None, watched="outside", starting=90.0, joined=False),
    ),
    Case("stuck, all there: job.collectives'", running(None, None, why="stuck")),
    Case("an OOM kill of somebody else", running(None, None, oom_kills=1)),
    Case("a pool that has ended its workers", job(TERM, TERM, exit=0)),
    Case("not joined yet", running(None, None, joined=False)),
    Case("a job of which this is a part", running(None, None, world=8)),
)


def alone(exit: int | None, why: str, problem: str = "") -> dict[str, Life]:
    """Of a command in which no rank was seen."""
    return {"n1/0": Life(WatchedCommand(CMD, exit, why, 20.0), watched="", problem=problem)}


def failed(raised: Uncaught, argv: tuple[str, ...] = CMD) -> dict[str, Life]:
    """A command that such an exception has ended."""
    command = WatchedCommand(argv, 1, "ended", 4.5, raised=raised)
    return {"n1/0": Life(command, watched="")}


def fails(
    code: str, name: str, saw: dict[str, Life], rank: int | None = None, **more: object
) -> Case:
    subject = None if rank is None else f"n1 · rank {rank}"
    return Case(name, saw, code, **{"status": FAIL, "subject": subject} | more)  # type: ignore[arg-type]


def raises(name: str, saw: dict[str, Life], rank: int | None = None, **more: object) -> Case:
    return fails("rank-raised", name, saw, rank, **more)


def kills(name: str, rank: int | None, *ends: End, **more: object) -> Case:
    return fails("rank-killed", name, job(*ends, **more), rank)  # type: ignore[arg-type]


def leaves(name: str, saw: dict[str, Life], rank: int, **more: object) -> Case:
    return fails("rank-exited", name, saw, rank, **more)


def away(*ends: End | None, **more: object) -> dict[str, Life]:
    """Ranks that wait for others in init_process_group."""
    return job(*ends, **{"exit": None, "why": "stuck", "joined": False} | more)  # type: ignore[arg-type]


def signal(number: int, at: float = 100.0) -> End:
    return end("vanished", at, -number)


RAISED = (
    raises("raised", job(told(), raised(), told(100.3), TERM), 1),
    raises("raised, noticed late", job(told(99.8), raised(at=100.4)), 1),
    raises("raised alone", running(None, raised(), why="stuck"), 1),
    raises("on all ranks the same", job(raised("E: 1 of 2"), raised("E: 2 of 2", 100.1))),
    raises("raised, then started again", job(raised(), WELL, exit=0), status=WARN),
    raises("started anew", but(running(None, raised(), None), 2, rank=1), status=WARN),
    raises("only complaints", job(told(), told(101.0, LATE), TERM)),
    raises("the model differs", job(raised(MODEL), TERM)),
    raises("most are done, one wants more", job(told(100.4), WELL, WELL, WELL), 0),
    raises("own connection", job(raised(OTHER), told()), 0),
    raises("sizes differ", job(told(100.1), raised(MISFIT)), 1),
    raises("by all, and nobody looked", job(raised(), raised(at=100.1), exit=0)),
    raises("one, and its peer for it; nobody looked", job(told(), raised(), exit=0), 1),
    Case(
        "before they said who they are",
        {key: replace(life, rank=None, world=0) for key, life in job(raised(), raised()).items()},
        "rank-raised",
        FAIL,
        subject="n1 · pid 1000",
    ),
    raises("its port is in use", job(raised(IN_USE), told(90.0, KEYS)), 0),
    raises("interrupted by the launcher", job(raised("E: x"), raised("KeyboardInterrupt: ")), 0),
    raises(
        "a peer's end, noticed otherwise", job(told(100.1, PAIR + "Socket closed"), raised()), 1
    ),
)

KILLED = (
    kills("killed", 2, told(), told(), signal(9, 100.6)),
    kills("crashed", 0, signal(11), told()),
    kills("aborted", 1, told(), signal(6)),
    kills("/dev/shm", 1, told(), signal(7)),
    kills("asked to end", None, TERM, TERM, exit=-15),
    kills("a signal without a name", 1, told(), signal(60)),
    kills("it had failed before it aborted", 1, told(), end("exited", 100.0, -6, "3")),
    kills("killed by status", 1, told(), end("vanished", 100.0, 139)),
    fails("rank-oom", "out of memory", job(told(), signal(9), oom_kills=2), 1),
    fails("rank-oom", "out of memory, vanished", job(told(), end("vanished"), oom_kills=1), 1),
    fails("rank-oom", "a worker out of memory", job(raised(FORK), told(), oom_kills=1), 0),
)


def memory(own: str = "30.80", others: str = "", pieces: str = "0.50", at: float = 100.0) -> End:
    """Of a rank whose GPU had no room, as rehearse keeps it."""
    tensors = f"{float(own) - float(pieces) - 1.1:.2f}"
    text = MEMORY.format(own=own, others=others, tensors=tensors, pieces=pieces)
    return replace(raised(text[:300], at), whole=text)


def cuda(error: str, at: float = 100.0) -> End:
    suffix = "CUDA kernel errors might be asynchronously reported at some other API call"
    return raised(f"RuntimeError: CUDA error: {error} {suffix}", at)


def held(pid: int) -> str:
    return f"Process {pid} has 14.26 GiB memory in use. "


def short(name: str, saw: dict[str, Life], rank: int | None = None, **more: object) -> Case:
    return fails("rank-gpu-oom", name, saw, rank, **more)


def breaks(name: str, saw: dict[str, Life], rank: int | None = None, **more: object) -> Case:
    return fails("rank-cuda-error", name, saw, rank, **more)


LEAK = tuple((n, n << 28) for n in range(4, 120, 4))
ON_GPUS = (
    short("no room on the GPU", job(told(text=REMOTE), memory(), TERM), 1),
    short("a stranger on the GPU", job(told(), memory("16.63", held(19239))), 1),
    short("two ranks on one GPU", job(told(), memory("16.63", held(1000))), 1),
    short("somebody who can't be seen", job(told(), memory("16.63")), 1),
    short("in pieces", job(told(), memory(pieces="3.20")), 1),
    short("after it grew", but(job(told(), memory()), 1, on_gpu=LEAK), 1),
    short("on all ranks", job(memory(), memory("29.10", at=100.1), memory(at=100.2))),
    short(
        "cuBLAS has no room", job(told(), cuda("CUBLAS_STATUS_ALLOC_FAILED when calling `x`")), 1
    ),
    short("of an old report", job(told(), raised(MEMORY[:300])), 1),
    short("no room, then started again", job(memory(), WELL, exit=0), status=WARN),
    breaks("a kernel asserts", job(told(100.1, REMOTE), raised(ASSERTED), TERM), 1),
    breaks("a bad pointer on the GPU", job(told(), cuda("an illegal memory access was enc")), 1),
    breaks("ECC", job(told(), cuda("uncorrectable ECC error encountered")), 1),
    breaks("the GPU is gone", job(told(), cuda("unknown error")), 1),
    breaks(
        "a kernel asserts, then started again", job(raised(ASSERTED), WELL, exit=0), status=WARN
    ),
    breaks("no such GPU", job(told(), cuda("invalid device ordinal")), 1),
    breaks("built for another GPU", job(cuda("no kernel image is available for"), told()), 0),
    raises("it only mentions memory", job(told(), raised("ValueError: CUDA out of memory?")), 1),
    raises("the host's memory", job(told(), raised("MemoryError: ")), 1),
)

LEFT = (
    # its connections are closed; the launcher ends what is left of it, or its interpreter crashes
    leaves("done, then ended by its launcher", job(told(), told(), end("exited", 100.0, -15)), 2),
    leaves("done, then crashed while taken down", job(told(), end("exited", 100.1, -6)), 1),
    kills("done, crashed, and nobody had waited for it", 1, WELL, end("exited", 100.0, -11)),
    leaves("sys.exit(3)", job(told(), end("exited", 100.0, 3), TERM), 1),
    leaves("os._exit(3)", job(TERM, end("vanished", 100.7, 3)), 1),
    leaves("left, and the others fail", job(told(), WELL, told()), 1),
    raises("saves its work at the launcher's signal", job(told(), end("exited", 101.0, 0)), 0),
    raises("and ends with the status of one", job(told(), end("exited", 101.0, 143)), 0),
    leaves("left, and the others stand still", running(None, None, WELL, why="stuck"), 2),
    Case(
        "left, and the other hangs in its own end",
        but(running(WELL, None, why="stuck"), 1, closing=True),
    ),
    leaves("left without a word", running(None, end("vanished"), why="stuck"), 1),
    leaves("vanished, the others fail", job(told(), end("vanished", 101.0)), 1),
    leaves("vanished at the end", running(None, end("vanished")), 1, status=UNDECIDED),
)

BUSY = (
    fails("rank-late", "the others gave up", job(told(100.2, SHORT), busy(0.3), TERM), 1),
    fails("rank-late", "seen shortly before", job(told(100.2, SHORT), busy(1.0), TERM), 1),
    fails(
        "rank-late",
        "at a monitored barrier: rank 0 gave up, the other was released by that",
        job(told(100.2, GAVE_UP), told(100.19, RELEASED), busy(0.3)),
        2,
    ),
    fails(
        "rank-late",
        "came when the others had given up, and lost its peer then",
        job(told(100.2, SHORT), replace(told(103.0), last=(STEP,), ago=0.5), TERM),
        1,
    ),
    raises(
        "had waited as long, and lost its peer",
        job(told(100.2, SHORT), replace(told(100.3), last=(STEP,), ago=8.1), TERM),
    ),
    raises("seen long before", job(told(100.2, SHORT), busy(3.0), TERM)),
    raises("had a collective open", job(told(100.2, SHORT), busy(0.3, open=True), TERM)),
    raises("lost a peer, and did not give up", job(told(100.2), busy(0.3), TERM)),
)

ABSENT = (
    fails("rank-absent", "two of three", away(None, None, world=3), subject="rank 2"),
    fails(
        "rank-absent",
        "two of three, timed out",
        away(told(700, STORE), told(700, KEYS), world=3, exit=1, why="ended"),
        subject="rank 2",
    ),
    fails(
        "rank-absent",
        "said so by its launcher",
        away(None, None, world=8, absent=(2, 3, 4, 5, 6, 7)),
        topology=TWO,
    ),
    fails("rank-absent", "perhaps elsewhere", away(None, None, None, None, world=8), topology=TWO),
    fails(
        "rank-absent",
        "still on its way",
        but(away(None, None), 1, watched="outside", starting=31.0),
        1,
    ),
    fails(
        "rank-absent",
        "did not join",
        away(told(700, KEYS), signal(15, 700.3), exit=1, why="ended"),
        1,
    ),
)

STATIC = Joining(LAUNCHER, "gpu1:29500", 12.0, mine=0, size=2, come=1, command="torchrun t.py")
WAITS = Joining(RANK, "gpu1:29500", 40.0, mine=0, size=3, come=2, known=(1,))


def launcher(**changes: object) -> dict[str, Life]:
    """A launcher without ranks, which attach has looked at."""
    one = replace(STATIC, **changes)  # type: ignore[arg-type]
    return {"n1/0": Life(WatchedCommand(("pid 7",), None, "time", 6.0), pid=7, joining=one)}


def blind(problem: str) -> dict[str, Life]:
    return away(None, None, why="time", watched="", problem=problem)


ATTACHED = (
    fails("rendezvous-incomplete", "a node is missing", launcher()),
    fails("rendezvous-incomplete", "for a moment only", launcher(since=3.0), status=UNDECIDED),
    fails("rendezvous-unreachable", "refused", launcher(error="ECONNREFUSED", come=None)),
    fails(
        "rendezvous-unreachable",
        "refused for a moment",
        launcher(error="ECONNREFUSED", come=None, since=3.0),
        status=UNDECIDED,
    ),
    fails("not-watched", "no rank so far", launcher(size=0), status=UNDECIDED),
    fails(
        "rank-absent", "the store knows two", away(None, world=3, joining=WAITS), subject="rank 2"
    ),
    fails(
        "rank-absent",
        "the store knows two so far",
        away(None, world=3, joining=replace(WAITS, since=2.0)),
        status=UNDECIDED,
    ),
    Case("the store knows all", away(None, world=3, joining=replace(WAITS, come=3, known=(1, 2)))),
    fails("stacks-unreadable", "without py-spy", blind(NO_PYSPY), status=UNDECIDED),
    fails("ended-meanwhile", "at its end", blind(WENT), status=UNDECIDED),
    fails("stacks-unreadable", "without leave", blind(f"{NO_PTRACE}: no"), status=UNDECIDED),
)

MEET = Joins(1, "tcp", "n1", 29500, rank=0, world=2, frame=STEP)


def meets(code: str, *said: Joins, why: str = "stuck") -> Case:
    """Ranks that wait in init_process_group, with what they gave it."""
    each = away(*[None] * len(said), why=why)
    return fails(
        code,
        code,
        {
            key: replace(life, joins=joins)
            for (key, life), joins in zip(each.items(), said, strict=True)
        },
    )


MEETING = (
    meets("rendezvous-differs", MEET, replace(MEET, port=29501)),
    meets("rendezvous-replaced", MEET, replace(MEET, port=29501, held=HeldStore("n1", 29500))),
    meets("world-size-differs", MEET, replace(MEET, world=3)),
    meets("rendezvous-file-stale", replace(MEET, how="file", port=0, path="/x", stale=99.0)),
    meets("rendezvous-unreachable", *[replace(MEET, refused="Connection refused")] * 2),
    fails(
        "rank-duplicate",
        "as one rank",
        but(
            {k: replace(v, joins=MEET) for k, v in away(None, None).items()},
            1,
            twins=(replace(MEET, pid=2),),
        ),
        1,
    ),
)

CASES = (
    *HEALTHY,
    *MEETING,
    *ATTACHED,
    Case("no rank, and it ended with 0", alone(0, "ended")),
    *RAISED,
    *KILLED,
    *ON_GPUS,
    *LEFT,
    *BUSY,
    *ABSENT,
    fails("command-failed", "no such script", alone(2, "ended")),
    fails(
        "command-failed",
        "the launcher says why",
        failed(Uncaught("ModuleNotFoundError: No module named 'flash_attn'", STEP, own=True)),
    ),
    fails(
        "command-failed",
        "one of its processes says why",
        failed(Uncaught("ValueError: no data", STEP)),
    ),
    fails("not-launched", "python train.py", failed(Uncaught(RANK_UNSET, STEP, own=True), PLAIN)),
    fails("not-launched", "a KeyError", failed(Uncaught("KeyError: 'LOCAL_RANK'", STEP, own=True))),
    fails("command-failed", "another KeyError", failed(Uncaught("KeyError: 'RANKS'", own=True))),
    fails("command-failed", "the launcher crashed", job(WELL, WELL, exit=-11)),
    fails("not-watched", "isolated", alone(None, "blind", "it is isolated"), status=UNDECIDED),
    fails("none-started", "still importing", alone(None, "time", NOT_IMPORTED), status=UNDECIDED),
    fails("none-started", "no process", alone(None, "time"), status=UNDECIDED),
    fails("not-watched", "none, and why", alone(None, "time", "no py-spy"), status=UNDECIDED),
    Case("no record", {"n1/0": Missing(Cause.CANNOT_OBSERVE, "no such file")}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(job_ranks, case)
    assert len(judged(job_ranks, case)) <= 1, "one cause"


def by_name(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_the_text_names_line_and_consequences() -> None:
    found = judged(job_ranks, by_name("raised"))[0]
    assert found.saw == (
        "rank 1: ValueError: bad batch at train.py:31 in step · 3 others ended after it, the first "
        "at train.py:33"
    )
    assert found.confidence is Confidence.CERTAIN
    assert found.blame is Blame.JOB


def test_why_a_gpu_had_no_room_comes_first() -> None:
    found = judged(job_ranks, by_name("two ranks on one GPU"))[0]
    assert found.saw == (
        "rank 1: CUDA out of memory at train.py:31 in step: ranks 0-1 share GPU 0, 14 GiB of it "
        "held by rank 0 · GPU 0: tried to allocate 1.2 GiB, 472 MiB of 31 GiB free, this rank "
        "has 17 GiB, 15 GiB in tensors, 512 MiB reserved beside · 1 other ended after it, the "
        "first at train.py:33"
    )
    assert found.confidence is Confidence.CERTAIN
    assert "LOCAL_RANK" in found.fields["advice"]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("no room on the GPU", "job.balance"),
        ("on all ranks", "torch.cuda.memory_summary"),
        ("a stranger on the GPU", "nvidia-smi shows who pid 19239 is"),
        ("in pieces", "PYTORCH_ALLOC_CONF=expandable_segments:True"),
        ("a kernel asserts", "num_embeddings"),
        ("a bad pointer on the GPU", "CUDA_LAUNCH_BLOCKING=1"),
        ("no such GPU", "LOCAL_RANK, not by RANK"),
        ("built for another GPU", "host.software"),
    ],
)
def test_what_is_done_fits_the_cause(name: str, advice: str) -> None:
    assert advice in judged(job_ranks, by_name(name))[0].fields["advice"]


@pytest.mark.parametrize(
    ("name", "blame"),
    [
        ("two ranks on one GPU", Blame.JOB),
        ("a stranger on the GPU", Blame.UNKNOWN),
        ("somebody who can't be seen", Blame.UNKNOWN),
        ("ECC", Blame.NODE),
        ("the GPU is gone", Blame.UNKNOWN),
        ("no such GPU", Blame.JOB),
    ],
)
def test_who_is_blamed(name: str, blame: Blame) -> None:
    assert judged(job_ranks, by_name(name))[0].blame is blame


def test_equal_shortages_of_several_ranks_are_one() -> None:
    found = judged(job_ranks, by_name("on all ranks"))[0]
    assert [s.name for s in found.subjects] == ["0", "1", "2"]
    assert found.saw.startswith(
        "ranks 0-2: CUDA out of memory at train.py:31 in step · rank 0, GPU"
    )


def test_a_late_error_is_at_its_line_or_before_and_without_addresses() -> None:
    found = judged(job_ranks, by_name("a kernel asserts"))[0]
    assert found.saw.startswith(
        "rank 1: CUDA error: device-side assert triggered at or before train.py:31 in step · 2 "
    )
    assert (found.blame, found.confidence) == (Blame.JOB, Confidence.CERTAIN)
    assert "before" not in judged(job_ranks, by_name("no such GPU"))[0].saw


def test_a_node_is_only_likely_and_how_to_look_at_it_is_said() -> None:
    found = judged(job_ranks, by_name("ECC"))[0]
    assert found.confidence is Confidence.LIKELY
    assert found.fields["command"].split("\0") == ["preflight", "run", "--only", "gpu"]
    assert judged(job_ranks, by_name("a kernel asserts"))[0].fields["command"] == ""
    access = judged(job_ranks, by_name("a bad pointer on the GPU"))[0]
    assert (access.blame, access.confidence) == (Blame.JOB, Confidence.LIKELY)
    assert access.alternatives


def test_the_own_frame_is_named() -> None:
    found = judged(job_ranks, Case("", job(raised("E: x", 100.0, INNER, STEP), told())))[0]
    assert "train.py:31" in found.saw


def test_equal_errors_of_several_ranks_are_one() -> None:
    found = judged(job_ranks, by_name("on all ranks the same"))[0]
    assert [s.name for s in found.subjects] == ["0", "1"]
    assert found.saw.startswith("ranks 0-1: E: 1 of 2")


def test_complaints_alone_blame_nobody() -> None:
    found = judged(job_ranks, by_name("only complaints"))[0]
    assert found.confidence is Confidence.POSSIBLE
    assert found.alternatives
    assert found.blame is Blame.UNKNOWN


@pytest.mark.parametrize(
    ("name", "word"),
    [("/dev/shm", "/dev/shm"), ("aborted", "Gloo"), ("crashed", "SIGSEGV"), ("killed", "SIGKILL")],
)
def test_a_signal_has_its_usual_cause(name: str, word: str) -> None:
    assert word in judged(job_ranks, by_name(name))[0].saw


def test_where_it_crashed_is_told() -> None:
    saw = job(end("vanished", 100.0, -11, "", INNER, STEP), told())
    assert "SIGSEGV at train.py:31 in step: " in judged(job_ranks, Case("", saw))[0].saw


def test_an_abort_inside_of_a_collective_says_so() -> None:
    inside = Frame("/x/torch/distributed/distributed_c10d.py", 3252, "all_reduce")
    saw = job(told(), end("vanished", 100.0, -6, "", inside, STEP))
    text = judged(job_ranks, Case("", saw))[0].saw
    assert "SIGABRT at train.py:31 in step: Gloo ends all_reduce so" in text


def test_a_crash_after_an_exception_does_not_hide_it() -> None:
    """While its interpreter is taken down: `terminate called without an active exception`. The
    other rank sees that its peer is gone before that one has written what happened."""
    first = end("raised", 100.3, -6, "LookupError: token 50257", STEP)
    for other in (TERM, told(), replace(told(), code=-6), replace(told(), code=-15)):
        (found,) = judged(job_ranks, Case("", job(other, first)))
        assert (found.code, [s.name for s in found.subjects]) == ("rank-raised", ["1"])
        assert "rank 1: LookupError: token 50257 at train.py:" in found.saw


def test_who_left_and_where_the_others_waited() -> None:
    text = judged(job_ranks, by_name("left, and the others fail"))[0].saw
    assert text == (
        "rank 1: left by itself with exit status 0 · 2 others ended with errors after it, "
        "waiting for it at train.py:33 in step"
    )


def test_who_left_by_sys_exit_is_said_to_have_left_there() -> None:
    left = end("exited", 100.0, 0, "", Frame("data.py", 64, "fetch", own=True))
    (found,) = judged(job_ranks, Case("", job(told(), left, told())))
    assert found.saw.startswith("rank 1: left by itself with exit status 0 at data.py:64 in fetch")


def test_an_abort_may_be_a_symptom() -> None:
    found = judged(job_ranks, by_name("aborted"))[0]
    assert (found.blame, found.confidence) == (Blame.UNKNOWN, Confidence.LIKELY)


def test_where_a_rank_is_that_nobody_watches_is_only_possible() -> None:
    found = judged(job_ranks, by_name("perhaps elsewhere"))[0]
    assert found.confidence is Confidence.POSSIBLE
    assert not found.explains
    sure = judged(job_ranks, Case("", running(None, why="stuck", world=2, joined=False)))[0]
    assert sure.explains


def test_a_later_kill_is_the_launchers() -> None:
    found = judged(job_ranks, Case("", job(raised(), end("vanished", 131.0, -9))))[0]
    assert [s.name for s in found.subjects] == ["0"]


def test_other_clocks_make_it_likely() -> None:
    seen = job(raised(), None, exit=1)
    seen["n2/1"] = replace(seen.pop("n1/1"), end=raised("KeyError: 'x'", 100.5))
    found = judged(job_ranks, Case("", seen))[0]
    assert found.confidence is Confidence.LIKELY


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
@pytest.mark.parametrize(
    "cause",
    [raised(), end("vanished", 100.4, -11), end("vanished", 99.5, -9), end("exited", 99.9, 7)],
    ids=["raised", "crashed", "killed", "exited"],
)
def test_the_cause_is_named_however_it_is_noticed(order: tuple[int, ...], cause: End) -> None:
    ends = [cause, told(99.9), TERM]
    seen = job(*(ends[i] for i in order))
    found = judged(job_ranks, Case("", seen))[0]
    assert [s.name for s in found.subjects] == [str(order.index(0))]


def test_what_is_measured() -> None:
    text = job_ranks.measured(world("job.ranks", running(None, WELL))).text
    assert text == "2 of 2 ranks · 1 alive · 1 ended well · watched for 12.1 s"
    text = job_ranks.measured(world("job.ranks", alone(0, "ended"))).text
    assert text == "ended by itself after 20.0 s, exit 0 · not distributed"


# --- observe ---


def record(folder: Path, *lives: Life) -> str:
    made = RehearsalRecord(tuple(Rehearsed(life, Calls(rank=life.rank)) for life in lives))
    (folder / "record.json").write_text(json.dumps(encode(made)), encoding="utf-8")
    return "/record.json"


def test_each_rank_reads_its_own(tmp_path: Path) -> None:
    lives = list(job(WELL, raised()).values())
    path = record(tmp_path, *lives)
    for rank, life in enumerate(lives):
        ctx = context(local_rank=rank, options={"record": path})
        seen = job_ranks.observe(Host(str(tmp_path)), ctx)
        assert seen == life
        round_trips(seen)


def test_without_a_rehearsal_there_is_nothing_to_look_at() -> None:
    with pytest.raises(NotApplicable, match="preflight rehearse"):
        job_ranks.observe(Host(), context())


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"ranks": [{}]}', "[" * 100_000, '{"ranks": []}', "\x00"],
    ids=["empty", "cut", "list", "no life", "deep", "no ranks", "zero"],
)
def test_what_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text, encoding="utf-8")
    with pytest.raises(CannotObserve, match="record"):
        job_ranks.observe(Host(str(tmp_path)), context(options={"record": "/record.json"}))


def test_a_record_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotObserve, match="No such file"):
        job_ranks.observe(Host(str(tmp_path)), context(options={"record": "/none"}))


@pytest.mark.parametrize(
    ("argv", "now"),
    [
        (PLAIN, "torchrun --standalone --nproc-per-node=auto train.py --name 'a b'"),
        (("accelerate", "launch", "train.py"), ""),
        (("python", "-m", "train"), ""),
        (("python", "train.py", "--token=***"), ""),
        (("python", "train.py", *"x" * 63), ""),
    ],
)
def test_how_it_is_launched(argv: tuple[str, ...], now: str) -> None:
    (found,) = judged(job_ranks, Case("", failed(Uncaught(RANK_UNSET, STEP, own=True), argv)))
    assert found.advice.now == now


def test_the_node_that_says_why() -> None:
    silent = Life(WatchedCommand(CMD, 1, "ended", 4.5), watched="")
    (says,) = failed(Uncaught("ValueError: no", STEP)).values()
    seen = {"n1/0": silent, "n2/0": says}
    (found,) = judged(job_ranks, Case("", seen))
    assert str(found.subjects[0]) == "n2 · the command"
