"""job.collectives: who calls something else, and whom the others wait for; silent where ranks may
do different things."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support import ras_cases as launched_cases
from support.cases import Case, assert_case, context, judged, round_trips, world
from support.rehearsed_worlds import (
    ALL,
    BEHIND,
    GOES,
    TWO,
    WAITS,
    at,
    call,
    gone,
    group,
    job,
    loader,
    over,
    pair,
    rank,
    steady,
    turns,
)

from preflight.check import conforms
from preflight.checks import job_collectives
from preflight.domains.job.record import (
    Calls,
    Caught,
    ChildProcess,
    Frame,
    Group,
    Life,
    RehearsalRecord,
    Rehearsed,
    Uncaught,
    WatchedCommand,
)
from preflight.host import Host
from preflight.model import Blame, CannotObserve, Cause, Confidence, Missing, NotApplicable, Status
from preflight.serde import encode

conforms(job_collectives)

FAIL, WARN, UNDECIDED = Status.FAIL, Status.WARN, Status.UNDECIDED
SHORT = {"loader": loader(6, 6, done=True), "batches": 6}
COUNTED = SHORT | {"loader": loader(6, 6)}
LONG = {"loader": loader(7, 8), "batches": 7}


ROOTED = {"op": "broadcast", "functions": False}
IN_CALL = rank("collective", group(call(7)), still=4.0, quiet=4.0)
ASKS, LEAVES = replace(BEHIND, at="store", keys=("ready",)), replace(BEHIND, leaving=True)
SENDER = group(call(1, "send 0->1", 50, p2p=True))
RECEIVER = group(call(1, "recv 1<-0", 60, p2p=True))
FROM_0 = rank("collective", group(call(7, "broadcast", root=0)))
FROM_1 = rank("collective", group(call(7, "broadcast", root=1)))
UNKNOWN_ROOT = rank("collective", group(call(7, "broadcast")))
IN_THREAD = rank("collective", group(call(7, "all_gather", thread=True, frame=None)))


def in_call(started: bool) -> Calls:
    """A rank in the call that the others wait in, too: where torch records what GPUs start."""
    calls = call(6, done=True, started=True), call(7, started=started)
    return rank("collective", group(*calls, done=5))


def two(one: Calls) -> Calls:
    """In a job of two ranks."""
    return replace(one, groups=tuple(replace(g, ranks=TWO) for g in one.groups))


REACHED, BLOCKED = in_call(True), in_call(False)
BY_COPY = rank("own", group(done=6), line=66, gpu_wait=".cuda()")

POLLS = rank("own", group(done=7), steps=90, quiet=20.0, seconds=32.0, cpu=0.02)
IN_RPC = replace(
    POLLS,
    cpu=0.7,
    stack=(Frame("/x/site-packages/torch/distributed/rpc/api.py", 842, "rpc_sync"), *POLLS.stack),
)

HEALTHY = (
    Case("all go on", over("time", GOES, GOES, GOES, GOES)),
    Case("all have done their steps", over("steps", GOES, GOES)),
    Case("all ended well", over("ended", *[gone("exited")] * 4)),
    Case("one evaluates for a while", over("time", GOES, IN_CALL, IN_CALL, IN_CALL)),
    Case("a long step before the call", over("time", GOES, replace(IN_CALL, quiet=40.0))),
    Case("a slow start of one", over("time", replace(GOES, groups=()), rank("init", quiet=30.0))),
    Case("one call ahead", over("time", IN_CALL, replace(GOES, groups=(group(done=7),)))),
    Case("root and receivers on their lines", steady(turns(1, 3, **ROOTED), turns(2, 3, **ROOTED))),
    Case("each is the root in turn", steady(turns(1, 2, **ROOTED), turns(2, 1, **ROOTED))),
    Case("mine in turn", steady(turns(1, 2, functions=False), turns(2, 1, functions=False))),
    Case("other loops of equal counts", steady(turns(1, 1, 2), turns(3, 3, 4))),
    Case(
        "other groups do other things",
        steady(
            replace(turns(1, 2), name="a", ranks=TWO),
            replace(turns(1, 2), name="a", ranks=TWO),
            replace(turns(2, 1, op="all_gather"), name="a", ranks=(2, 3)),
            replace(turns(2, 1, op="all_gather"), name="a", ranks=(2, 3)),
        ),
    ),
    Case(
        "uneven parts while it goes on",
        over(
            "time",
            rank("collective", group(call(7, "all_gather", shape="[3] Float")), still=1.0),
            rank("collective", group(call(7, "all_gather", shape="[5] Float")), still=1.0),
        ),
    ),
    Case(
        "scatter and all-to-all have sizes of their own",
        over(
            "time",
            rank("own", group(call(7, "scatter", shape="", done=True)), quiet=1.0),
            rank("own", group(call(7, "scatter", shape="[4] Float", done=True)), quiet=1.0),
        ),
    ),
    Case("Join: one is done, nobody waits", over("time", gone("exited", **SHORT), GOES)),
    Case("pipeline", over("time", rank("collective", SENDER, still=1), rank("own", still=1))),
    Case("another raised: job.ranks'", job(WAITS, WAITS, gone("raised"), WAITS)),
    Case("another was killed: job.ranks'", job(WAITS, gone("vanished"), why="ended")),
    Case("one of two left: job.ranks'", job(WAITS, gone("exited"))),
    Case("one of four left: job.ranks'", job(WAITS, WAITS, WAITS, gone("exited"))),
    Case("interrupted", over("interrupted", GOES, GOES)),
    Case("a root that is not known", over("time", FROM_0, UNKNOWN_ROOT, FROM_0, FROM_0)),
    Case(
        "all in the same thread of theirs",
        over("time", *(replace(IN_THREAD, still=1.0, quiet=1.0) for _ in range(4))),
    ),
    Case("one waits for a key while others go on", over("time", ASKS, GOES, GOES)),
    Case("one process, no collectives", {"n1/0": Calls(why="time", seconds=30.0)}),
    Case("one process, ended", {"n1/0": Calls(why="ended", at="gone", ended="exited")}),
    Case("restarted", over("time", replace(GOES, rank=0), gone("raised", rank=0), GOES)),
)


def finds(
    code: str, name: str, saw: Mapping[str, Calls], of: int | None = None, **more: object
) -> Case:
    subject = None if of is None else f"n1 · rank {of}"
    return Case(name, saw, code, **{"status": FAIL, "subject": subject} | more)  # type: ignore[arg-type]


def differs(name: str, saw: Mapping[str, Calls], of: int | None = None) -> Case:
    return finds("collective-mismatch", name, saw, of)


def unpaired(name: str, saw: Mapping[str, Calls], of: int | None = None) -> Case:
    return finds("peer-mismatch", name, saw, of)


OTHER = rank("collective", group(call(7, "broadcast", 40)))
BARRIER = rank("collective", group(call(7, "barrier", 80, "")))
M, M0 = group(call(3, "barrier", 80, ""), done=2, name="m"), group(done=2, name="m")
SKIPS = "a call was left out before one of another group"
AHEAD, AHEAD_TWO = group(call(4), done=3, name="m"), pair(call(4), done=3, name="m")
HELD = rank("collective", group(call(7), call(8)), AHEAD)
LEFT_OUT = rank("collective", group(), AHEAD, gpu_wait=".item()")
X, Y = pair(call(3), done=2, name="x"), group(call(5), done=4, name="y")


def tagged(op: str, *tags: int) -> Calls:
    calls = (call(n, op, 50 + n, p2p=True, tag=tag) for n, tag in enumerate(tags, 1))
    return rank("collective", group(*calls))


def turns_from(root: int) -> Group:
    made = turns(1, 2, op="broadcast")
    return replace(made, calls=tuple(replace(one, root=root) for one in made.calls))


def gathers(rows: int) -> Calls:
    made = call(7, "all_gather", shape=f"[{rows}] Float", done=True, output=f"[4, {rows}] Float")
    return rank("own", group(made), still=0.1)


SWALLOWS = (Caught("ValueError: bad sample", at(9)),)

GATHERED = (
    gone("vanished", group(call(7, "all_gather"))),
    gone("vanished", group(call(7, "all_gather"))),
    gone("vanished", group(call(7, "all_gather", shape="[4] Float"))),
)

DIFFERS = (
    finds(
        "nothing-seen",
        "one is held up in a call with which the others have done",
        job(
            rank("collective", pair(call(7)), pair(done=4, name="m")),
            rank("collective", pair(call(6), done=5), pair(done=4, name="m")),
        ),
        status=UNDECIDED,
    ),
    differs(SKIPS, job(HELD, LEFT_OUT, HELD, HELD), 1),
    differs(f"{SKIPS}, on most", job(LEFT_OUT, HELD, LEFT_OUT, LEFT_OUT), 1),
    differs(
        f"{SKIPS}, by one of two",
        job(
            rank("collective", pair(call(7)), AHEAD_TWO),
            rank("collective", pair(), AHEAD_TWO),
        ),
        0,
    ),
    finds(
        "collective-mismatch",
        "all_gather of unequal parts while it goes on",
        over("time", *(gathers(n) for n in (9, 9, 4, 9))),
        2,
    ),
    differs("one takes another root", job(FROM_0, FROM_0, FROM_1, FROM_0), 2),
    differs("one takes another root, and it ends", steady(*(turns_from(r) for r in (0, 0, 1))), 2),
    finds(
        "threads-share-group",
        "a thread of one is first, the main thread of the others",
        job(OTHER, OTHER, IN_THREAD, OTHER),
    ),
    finds(
        "groups-differ",
        "groups made in another order on one",
        job(
            rank("own", group(done=3, name="1", ranks=(0, 2))),
            rank("own", group(done=3, name="2", ranks=(1, 2))),
            rank(
                "own",
                group(done=3, name="1", ranks=(1, 2)),
                group(done=3, name="2", ranks=(0, 2)),
            ),
            why="ended",
        ),
        2,
    ),
    finds(
        "groups-differ",
        "groups in the making, of pairs that one made in another order",
        job(
            rank("init", group(done=0, name="1", ranks=(0, 1))),
            rank("init", group(done=0, name="2", ranks=(1, 3))),
            rank("init", group(done=0, name="2", ranks=(2, 3))),
            rank("init", group(done=0, name="2", ranks=(2, 3))),
        ),
        1,
    ),
    finds(
        "groups-differ",
        "a group in the making, of which one has counted another before",
        job(
            rank("init", group(done=0, name="2", ranks=(0, 1))),
            rank("init", group(done=0, name="1", ranks=(0, 1))),
            rank("own"),
        ),
        0,
    ),
    finds(
        "exception-swallowed",
        "for an exception that it has caught",
        job(WAITS, replace(OTHER, caught=SWALLOWS), WAITS, WAITS),
        1,
    ),
    differs("which all have caught", job(*[replace(s, caught=SWALLOWS) for s in (WAITS, OTHER)])),
    differs("another operation", job(WAITS, OTHER, WAITS, WAITS), 1),
    differs("another operation, of two", job(WAITS, OTHER, world=2), 1),
    differs(
        "and nobody was in a loop", job(rank("collective", group(call(7, "gather", 9))), OTHER)
    ),
    differs("while it goes on", job(WAITS, OTHER, WAITS, why="time"), 1),
    differs(
        "another size", job(WAITS, WAITS, rank("collective", group(call(7, shape="[4] Float")))), 2
    ),
    differs(
        "another size, aborted",
        job(
            gone("raised", group(call(7))),
            gone("raised", group(call(7))),
            gone("vanished", group(call(7, shape="[4] Float"))),
            why="ended",
        ),
        2,
    ),
    differs("all-gathers of two sizes, aborted by Gloo", job(*GATHERED, why="ended", gloo=True), 2),
    Case("all-gathers of two sizes, which NCCL takes", job(*GATHERED, why="ended")),
    differs(
        "another type, and it goes on",
        steady(*[group(call(7, done=True))] * 2, group(call(7, shape="[8] Int", done=True))),
        2,
    ),
    differs(
        "one more than the others, who are done",
        job(rank("collective", group(call(7, "barrier", 80, ""))), *[gone("exited")] * 3),
        0,
    ),
    differs(
        "one more, and failed",
        job(gone("raised", group(call(7, "barrier", 80, ""))), *[gone("exited")] * 3, why="ended"),
        0,
    ),
    differs(
        "two groups in another order",
        job(
            rank("collective", X, group(done=4, name="y")),
            rank("collective", pair(done=2, name="x"), Y),
            rank("collective", Y),
            rank("collective", Y),
        ),
        0,
    ),
    differs(
        "one in another group of the same ranks",
        job(rank("collective", M, group(done=4, name="y")), *[rank("collective", M0, Y)] * 3),
        0,
    ),
    differs(
        "two of four in another group of the same ranks",
        job(
            *[rank("collective", M, group(done=4, name="y"))] * 2,
            *[rank("collective", M0, Y)] * 2,
        ),
    ),
    unpaired("tags that don't meet", job(tagged("send 0->1", 3), tagged("recv 1<-0", 4)), 0),
    finds("fabric-stuck", "tags that meet", job(tagged("send 0->1", 3), tagged("recv 1<-0", 3)), 0),
    differs(
        "the others are in the next epoch",
        job(
            replace(OTHER, **SHORT),
            replace(WAITS, batches=8, loader=loader(2, 6)),
            replace(WAITS, batches=8, loader=loader(2, 6)),
        ),
        0,
    ),
    unpaired("nobody receives", job(rank("collective", SENDER), WAITS, WAITS), 0),
    unpaired(
        "a ring of send and recv, one of whose ranks sends to another one",
        job(
            *(
                rank(
                    "collective", group(*(call(1, op, line, p2p=True) for op, line in told), done=0)
                )
                for told in (
                    (("send 0->1", 50), ("recv 0<-3", 51)),
                    (("send 1->2", 50), ("recv 1<-0", 51)),
                    (("send 2->0", 50), ("recv 2<-1", 51)),
                    (("recv 3<-2", 51), ("send 3->0", 50)),
                )
            )
        ),
        2,
    ),
    unpaired(
        "both send",
        job(
            rank("collective", group(call(1, "send 0->1", p2p=True))),
            rank("collective", group(call(1, "send 1->0", p2p=True))),
        ),
    ),
    differs("new_group by some", job(rank("init"), rank("init"), WAITS, WAITS)),
)

SWAPPED = (
    finds("order-swapped", "of three", steady(turns(1, 2), turns(2, 1), turns(1, 2)), 1),
    finds("order-swapped", "of two", steady(turns(5, 1, 2), turns(5, 2, 1))),
)

UNEVEN = (
    finds("data-uneven", "counted", job(gone("exited", **COUNTED), replace(WAITS, **LONG)), 0),
    finds("data-uneven", "ended", job(gone("exited", **SHORT), WAITS, replace(WAITS, **LONG)), 0),
    finds(
        "data-uneven",
        "elsewhere",
        job(replace(WAITS, **LONG), rank("own", **SHORT)),
        1,
    ),
    finds(
        "data-uneven", "at the barrier", job(replace(WAITS, **LONG), replace(BARRIER, **SHORT)), 1
    ),
    finds(
        "data-uneven",
        "all have ended",
        job(gone("raised", **LONG), gone("exited", **SHORT), why="ended"),
        1,
    ),
)


def stepping(*calls: str, steps: int = 10, completed: int = 1000) -> Calls:
    """A rank with the latest calls of so many: a letter for a barrier of that line, - for an
    all-reduce."""
    lines = {"a": 61, "b": 62}
    made = tuple(
        call(n, "barrier" if c in lines else "all_reduce", lines.get(c, 38), done=True)
        for n, c in enumerate("".join(calls), 1)
    )
    last = Group("0", (0, 1), completed, completed, made)
    return rank("own", last, steps=steps, world=2, why="time", still=0.1, quiet=0.1)


OFTEN = stepping("aaa", *["-" + "a" * 12] * 3)
MADE_ANEW = replace(
    OFTEN,
    steps=40,
    groups=tuple(
        Group(str(n), (0, 1), 1, 1, made=Frame("train.py", 31, "reduce", True)) for n in range(20)
    ),
)
BARRIERS = (
    finds("barriers-in-step", "12 and more", job(OFTEN, OFTEN), 0, status=WARN),
    finds(
        "barriers-in-step",
        "of several buckets",
        job(*[stepping(*["---" + "a" * 9 + "b"] * 4)] * 2),
        0,
        status=WARN,
    ),
    finds("groups-repeated", "a group in each step", job(MADE_ANEW, MADE_ANEW), 0, status=WARN),
    Case("7 in a step", job(*[stepping(*["-" + "a" * 7] * 9)] * 2)),
    Case("one for each batch of an evaluation", job(*[stepping("-" * 90, "a" * 60, "----")] * 2)),
    Case("they were few, over all steps", job(*[replace(OFTEN, steps=200)] * 2)),
    Case("too few steps", job(*[replace(OFTEN, steps=4)] * 2)),
    Case("on one rank only", job(OFTEN, stepping(*["-" + "b" * 12] * 3))),
)

NOT_JOINED = [replace(rank(w), groups=(), world=2) for w in ("init", "own")]
NFS = rank("own", state="D", wchan="nfs_wait_on_request", line=12)
FAILED = replace(LEAVES, failure=Uncaught("ValueError: 12", LEAVES.stack[0]))
STANDS = (
    finds("rank-stuck", "in its own code", job(WAITS, BEHIND, WAITS, WAITS), 1),
    finds("rank-stuck", "two of them", job(WAITS, BEHIND, WAITS, BEHIND), 1),
    finds("rank-stuck", "of two", job(BEHIND, WAITS), 0),
    finds("rank-stuck", "through another group", job(
        rank("collective", pair(call(3), name="x", done=2), group(done=4)),
        rank("own", pair(name="x", done=2), group(done=4)),
        rank("collective", group(call(5), done=4)),
        rank("collective", group(call(5), done=4)),
    ), 1),
    finds("rank-stuck", "before init", job(*NOT_JOINED), 1),
    finds("rank-stuck", "does not answer", job(WAITS, rank("unknown", state="T")), 1),
    finds("rank-stuck", "does not receive", job(rank("collective", SENDER), BEHIND), 1),
    finds("rank-stuck", "each for itself", job(BEHIND, BEHIND)),
    finds("rank-stuck", "others wait for a key of its", job(ASKS, BEHIND, ASKS), 1),
    finds("store-key-unset", "all wait for a key", job(ASKS, ASKS), 0),
    finds("store-key-unset", "one does, the others for it", job(WAITS, ASKS, WAITS, WAITS), 1),
    finds("store-key-unset", "who has left did not set it", job(gone("exited"), ASKS, ASKS), 1),
    finds("exit-stuck", "alone at its exit", job(LEAVES, gone("exited"), gone("exited")), 0),
    finds("rank-stuck", "one has not come to its exit", job(LEAVES, BEHIND, LEAVES), 1),
    finds("exit-stuck", "all at their exits", job(LEAVES, LEAVES), 0),
    finds("failed-not-ended", "which it failed", job(WAITS, FAILED, WAITS), 1),
    finds("rank-stuck", "at its exit, and others wait", job(WAITS, LEAVES, WAITS, WAITS), 1),
    finds("loader-stuck", "its loader", job(WAITS, rank("loader", loader=loader(3), lost=1)), 1),
    finds("loader-stuck", "all loaders", job(*[rank("loader", loader=loader(3))] * 2), 0),
    finds("loader-stuck", "alone", {"n1/0": rank("loader", Group(""), world=0)}, 0),
    finds("storage-stuck", "NFS", job(WAITS, NFS), 1),
    finds("storage-stuck", "a disk", job(WAITS, replace(NFS, wchan="folio_wait_bit_common")), 1),
    finds(
        "storage-stuck",
        "of a worker",
        job(
            WAITS,
            rank("loader", children=(ChildProcess(9, "pt_data_worker", "D", "rpc_wait_bit"),)),
        ),
        1,
    ),
    finds("fabric-stuck", "all in one call", job(WAITS, WAITS, WAITS, WAITS), 0),
    finds("gpu-stuck", "one GPU of four", job(REACHED, REACHED, BLOCKED, REACHED), 2),
    finds("gpu-stuck", "one GPU of two", job(two(BLOCKED), two(REACHED), world=2), 0),
    finds("gpu-stuck", "it waits for its own", job(BY_COPY, WAITS, WAITS, WAITS), 0),
    finds("rank-stuck", "one of two waits for its GPU", job(BY_COPY, rank("own"), WAITS, WAITS), 0),
    finds("fabric-stuck", "all GPUs in the call", job(*[REACHED] * 4), 0),
    finds("fabric-stuck", "no GPU in the call", job(*[BLOCKED] * 4), 0),
    finds("fabric-stuck", "a start not recorded", job(REACHED, WAITS, REACHED, REACHED), 0),
    finds("fabric-stuck", "all in init", job(*[replace(rank("init"), groups=())] * 2, world=2), 0),
    finds("fabric-stuck", "sent and asked for", job(
        rank("collective", SENDER), rank("collective", RECEIVER)
    )),
)  # fmt: skip

LATE = rank("collective", group(call(7)), still=12.0, quiet=12.0)
BLIND = "torch 2.6.0: no flight recorder for gloo, and preflight could not record the calls"
BATON = (
    Frame("/x/torch/utils/file_baton.py", 51, "wait"),
    Frame("/x/torch/utils/cpp_extension.py", 2225, "_jit_compile"),
)
LOCKED = replace(rank("own", Group(""), steps=0), stack=(*BATON, at(4)), quiet=40.0)
CASES = (
    *launched_cases.CASES,
    *HEALTHY,
    *DIFFERS,
    *SWAPPED,
    *UNEVEN,
    *BARRIERS,
    *STANDS,
    finds(
        "rank-elsewhere",
        "the others wait for their GPUs",
        over(
            "time",
            *[replace(rank("own"), groups=(), gpu_wait=".item()")] * 2,
            replace(rank("own", line=99), groups=()),
        ),
        2,
        status=WARN,
    ),
    finds("rank-busy", "tokenises", over("time", GOES, LATE, LATE, LATE), 0, status=WARN),
    finds("rank-busy", "interrupted", over("interrupted", WAITS, BEHIND), 1, status=WARN),
    finds(
        "rank-busy",
        "slow data",
        over("time", replace(GOES, at="loader"), LATE),
        0,
        status=WARN,
    ),
    Case(
        "goes on, as its stacks show",
        over("time", *[rank("own", Group(""), steps=0, moves=True)] * 2),
    ),
    finds(
        "standstill",
        "all poll for something",
        over("time", *[POLLS] * 2),
        status=WARN,
    ),
    finds(
        "standstill",
        "remote calls, whose threads spin",
        over("time", IN_RPC, replace(IN_RPC, steps=0)),
        status=WARN,
    ),
    Case("a pause that is short", over("time", *[replace(POLLS, quiet=14.0)] * 2)),
    Case("steps that take long", over("time", *[replace(POLLS, steps=5)] * 2)),
    Case("one computes", over("time", POLLS, replace(POLLS, cpu=0.9))),
    Case("one writes", over("time", POLLS, replace(POLLS, works="writes 80 MB/s"))),
    Case("one waits in a call", over("time", POLLS, replace(WAITS, why="time", quiet=20.0))),
    Case("its program is over", over("time", POLLS, replace(POLLS, leaving=True))),
    finds(
        "nothing-seen",
        "no step",
        over("time", *[rank("own", Group(""), steps=0)] * 2),
        status=UNDECIDED,
    ),
    finds(
        "nothing-seen",
        "remote calls without a step, from outside",
        over("time", *[replace(IN_RPC, world=0, groups=(), steps=0, quiet=5.0)] * 2),
        status=UNDECIDED,
    ),
    finds(
        "nothing-seen",
        "waits for who is not watched",
        job(WAITS, WAITS, WAITS),
        status=UNDECIDED,
    ),
    finds(
        "nothing-seen",
        "alone, and stands still",
        {"n1/0": replace(BEHIND, world=0, groups=(), steps=0)},
        status=UNDECIDED,
    ),
    finds(
        "extension-locked",
        "an extension's lock",
        over("time", LOCKED, LOCKED),
        status=UNDECIDED,
    ),
    finds(
        "nothing-seen",
        "one builds an extension, the other waits for it",
        over("time", replace(LOCKED, stack=LOCKED.stack[1:]), LOCKED),
        status=UNDECIDED,
    ),
    finds(
        "calls-unrecorded",
        "no recorder",
        over("ended", *[rank("own", Group(""), unrecorded=BLIND, steps=200)] * 2),
        status=UNDECIDED,
    ),
    finds(
        "calls-unrecorded",
        "no recorder for one of two groups",
        over("ended", *[replace(GOES, unrecorded=BLIND)] * 2),
        status=UNDECIDED,
    ),
    Case("joined, and called nothing", over("ended", *[rank("own", Group(""), steps=0)] * 2)),
    Case("between two ranks only", over("ended", rank("own", SENDER), rank("own", RECEIVER))),
    Case("no record", {"n1/0": Missing(Cause.CANNOT_OBSERVE, "no such file")}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(job_collectives, case)
    assert len(judged(job_collectives, case)) <= 1, "one cause"


def found(name: str):  # type: ignore[no-untyped-def]
    return judged(job_collectives, next(case for case in CASES if case.name == name))[0]


def test_what_is_said_of_another_operation() -> None:
    told = found("another operation")
    assert told.saw == (
        "rank 1: broadcast [8] Float at train.py:40; ranks 0,2-3: all_reduce [8] Float at "
        "train.py:38, number 7"
    )
    assert (told.confidence, told.blame) == (Confidence.CERTAIN, Blame.JOB)
    assert told.fields["line"] == "train.py:40"


def test_of_two_both_are_named_and_either_may_be_right() -> None:
    told = found("and nobody was in a loop")
    assert [s.name for s in told.subjects] == ["0", "1"]
    assert told.confidence is Confidence.LIKELY
    assert len(told.alternatives) == 2


def test_who_left_the_loop_of_both_is_named() -> None:
    told = found("another operation, of two")
    assert [s.name for s in told.subjects] == ["1"]
    assert told.confidence is Confidence.LIKELY


def test_what_is_said_of_a_rank_that_stands_still() -> None:
    assert found("in its own code").saw == (
        "rank 1 has been stuck for 21.0 s at train.py:99 in step, and sleeps · ranks 0,2-3 have "
        "waited "
        "21.0 s in all_reduce [8] Float at train.py:38, number 7; torch gives up after 30 min"
    )


def test_what_is_said_of_data() -> None:
    assert found("elsewhere").saw == (
        "rank 1: 6 steps, 6 batches, len(loader) 6, SequentialSampler and no more; rank 0: 6 "
        "steps, 7 batches, len(loader) 8, SequentialSampler, and wait at train.py:38 in step"
    )
    assert found("all have ended").blame is Blame.UNKNOWN  # it folds under another cause


def test_what_is_said_of_a_loader() -> None:
    assert "3 of 10 batches, 2 workers, 1 child died" in found("its loader").saw


def test_each_place_is_named() -> None:
    told = found("two of them")
    assert [s.name for s in told.subjects] == ["1", "3"]
    assert told.saw.startswith("ranks 1,3 have been stuck for 21.0 s at train.py:99 in step")
    other = replace(BEHIND, stack=(at(120),))
    saw = judged(job_collectives, Case("", job(WAITS, BEHIND, WAITS, other)))[0].saw
    assert "rank 3 at train.py:120 in step" in saw


def test_a_rank_that_hangs_in_its_end_says_so() -> None:
    stack = (Frame("/x/torch/distributed/distributed_c10d.py", 9, "destroy_process_group"), at(99))
    gone, closing = replace(BEHIND, at="gone", ended="exited"), replace(BEHIND, stack=stack)
    (told,) = judged(job_collectives, Case("", job(gone, closing)))
    assert [s.name for s in told.subjects] == ["1"]
    assert "at train.py:99 in step, in destroy_process_group" in told.saw


def test_who_is_to_blame_for_storage() -> None:
    assert found("NFS").blame is Blame.NETWORK
    assert found("a disk").blame is Blame.UNKNOWN


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("one in another group of the same ranks", [(0,)]),
        ("two of four in another group of the same ranks", [(0,), (1,), (2,), (3,)]),
    ],
)
def test_most_are_right_where_the_groups_have_the_same_ranks(
    name: str, named: list[tuple[int, ...]]
) -> None:
    assert sorted(s.ranks for s in found(name).subjects) == named
    assert bool(found(name).alternatives) is (len(named) > 1)


def test_the_group_is_said_where_it_is_not_that_of_all() -> None:
    part = pair(call(3, "broadcast", 40), done=2, name="x")
    saw = job(rank("collective", pair(call(3), done=2, name="x")), rank("collective", part), BEHIND)
    told = judged(job_collectives, Case("", saw))[0]
    assert told.saw.endswith("number 3 of the group of ranks 0-1")


def test_nodes_are_in_the_subjects() -> None:
    saw = job(WAITS, BEHIND)
    saw["n2/1"] = saw.pop("n1/1")
    told = judged(job_collectives, Case("", saw))[0]
    assert str(told.subjects[0]) == "n2 · rank 1"


def test_a_stop_that_nobody_explains_is_undecided() -> None:
    silent = rank("collective", group())
    told = judged(job_collectives, Case("", job(silent, silent)))
    assert [f.code for f in told] == ["nothing-seen"]
    assert told[0].status is UNDECIDED


def test_the_lock_of_an_extension_is_named() -> None:
    """As a killed build leaves it: pytorch/pytorch#189245."""
    told = found("an extension's lock")
    assert told.saw == (
        "ranks 0-1 wait for the lock file of an extension that none of them builds, for 40.0 s"
        " · ranks 0-1 at train.py:4"
    )
    stuck = judged(job_collectives, Case("", job(LOCKED, LOCKED)))
    assert [f.code for f in stuck] == ["extension-locked"]


def test_it_is_said_why_calls_are_not_known() -> None:
    told = found("no recorder")
    assert told.saw == f"ranks 0-1 made calls that could not be seen: {BLIND}"
    assert [s.name for s in told.subjects] == ["0", "1"]


def test_what_is_measured() -> None:
    many = replace(GOES, groups=(Group("0", ALL, 1204, 1204),), steps=60, seconds=12.1)
    text = job_collectives.measured(world("job.collectives", over("time", many, many))).text
    assert text == "1,204 collectives, 60 steps in 12.1 s"
    text = job_collectives.measured(world("job.collectives", job(WAITS, BEHIND))).text
    assert text == "6 collectives, 6 steps in 33.0 s · 1 of 2 wait"
    alone = {"n1/0": Calls(why="ended")}
    text = job_collectives.measured(world("job.collectives", alone)).text
    assert text == "no collectives: not distributed"


# --- observe ---


def test_each_rank_reads_its_own(tmp_path: Path) -> None:
    seen = list(job(WAITS, BEHIND, rank("loader", loader=loader(3))).values())
    command = WatchedCommand(("torchrun",), None, "stuck", 33.0)
    made = RehearsalRecord(tuple(Rehearsed(Life(command), calls) for calls in seen))
    (tmp_path / "record.json").write_text(json.dumps(encode(made)), encoding="utf-8")
    for number, calls in enumerate(seen):
        ctx = context(local_rank=number, options={"record": "/record.json"})
        told = job_collectives.observe(Host(str(tmp_path)), ctx)
        assert told == calls
        round_trips(told)
    ctx = context(local_rank=3, options={"record": "/record.json"})
    with pytest.raises(CannotObserve, match="has 3 ranks"):
        job_collectives.observe(Host(str(tmp_path)), ctx)


def test_without_a_rehearsal_there_is_nothing_to_look_at() -> None:
    with pytest.raises(NotApplicable, match="preflight rehearse"):
        job_collectives.observe(Host(), context())
