"""job.pace: what the time of a step goes into is named, and healthy steps are not blamed."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import conforms
from preflight.checks import job_pace
from preflight.domains.job.needless import (
    Collected,
    Compiled,
    Gathered,
    Needless,
    NoSync,
    Profiled,
    Table,
    WorkerStarts,
)
from preflight.domains.job.record import (
    BusyThread,
    Frame,
    Life,
    Pace,
    RehearsalRecord,
    Rehearsed,
    Volume,
    WatchedCommand,
)
from preflight.domains.job.shared_buffers import SharedBuffers
from preflight.host import Host
from preflight.model import Blame, CannotObserve, Cause, Confidence, Missing, NotApplicable, Status
from preflight.serde import encode

conforms(job_pace)

HERE = Frame("/home/u/train.py", 24, "main", own=True)
BACKWARD = Frame("/home/u/train.py", 40, "main", own=True)
TOKENS = Frame("/home/u/train.py", 31, "tokenise", own=True)
FINE = Pace(
    step=0.21,
    steps=60,
    loader=0.03,
    waiting=0.2,
    looks=60,
    own=BACKWARD,
    own_part=0.4,
    collectives=4,
    size=25e6,
    cpus=8.0,
    mean=0.22,
)


def pace(**changes: Any) -> Pace:
    return dataclasses.replace(FINE, **changes)


def pickles(
    late: float = 1.1e6, all: int = 60, sized: bool = True, outside: float = 0.1, **more: Any
) -> Pace:
    """A rank that gathers objects where a step ends: their sizes, then the bytes."""
    sizes = Volume(TOKENS, "all_gather", 60, 8.0, 8.0, 0.0, all, "Long")
    objects = Volume(TOKENS, "all_gather", 60, late, late, 0.2, all, "Byte")
    return pace(
        **{"between": TOKENS, "outside": outside, "payloads": (objects, sizes)[: 1 + sized]} | more
    )


def test_what_the_driver_says_of_the_gpu_decides_about_the_loader() -> None:
    def codes(**changes: Any) -> list[str]:
        two = ranks(*[pace(cuda=True, **changes)] * 2)
        return [found.code for found in judged(job_pace, Case("", two))]

    assert codes(loader=0.4) == []
    assert codes(loader=0.4, busy=0.35) == ["loader-bound"]
    assert codes(loader=0.4, busy=0.7) == []
    assert codes(loader=0.6) == codes(loader=0.6, busy=0.7) == ["loader-bound"]
    assert codes(loader=0.6, busy=0.95) == []
    assert codes(loader=0.2, busy=0.35) == []


def ranks(*paces: Pace | Missing) -> dict[str, Pace | Missing]:
    return {
        f"n1/{i}": p if isinstance(p, Missing) else dataclasses.replace(p, rank=i)
        for i, p in enumerate(paces)
    }


def waits(*parts: float, **changes: Any) -> dict[str, Any]:
    return ranks(*(pace(waiting=part, **changes) for part in parts))


def slow(*parts: float, at: Frame = TOKENS) -> dict[str, Any]:
    """The first of them is the slow one."""
    first, *others = parts
    return ranks(pace(waiting=first, own=at, own_part=0.9), *(pace(waiting=p) for p in others))


def saves(first: float, other: float, backward: float = 0.06) -> dict[str, Any]:
    """Two ranks with steps of 0.1 s on the CPU: their seconds in own code, and how much longer the
    backward pass of the second takes."""
    usual = {"step": 0.1, "mean": 0.1, "waiting": 0.0, "pending": 0.6, "looks": 10}
    return ranks(
        pace(outside=first, backward=0.02, between=TOKENS, **usual),
        pace(outside=other, backward=0.02 + backward, **usual),
    )


def gathers(first: float, other: float, outside: float = 0.1) -> dict[str, Any]:
    """Two ranks with steps of 0.3 s on the CPU, the same seconds of each between optimizer and
    forward: parts of the samples in which they are in a collective."""
    usual = {"step": 0.3, "mean": 0.3, "pending": 0.3, "looks": 100, "outside": outside}
    usual |= {"backward": 0.1}
    return ranks(pace(waiting=first, between=TOKENS, **usual), pace(waiting=other, **usual))


def on_gpus(*outside: float, first: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Ranks whose hosts only start what their GPUs do, as measured on an H100 over NCCL: torch's
    count of what is done lags behind, and one that runs ahead has short steps and long waits. Their
    own code takes so many seconds of each step; `first` is how the first one differs."""
    usual = {
        "cuda": True,
        "nccl": True,
        "pending": 0.96,
        "waiting": 0.0,
        "mean": 0.054,
        "step": 0.004,
        **changes,
    }
    each = [pace(outside=own, between=TOKENS, **usual) for own in outside]
    each[0] = dataclasses.replace(each[0], **{"step": 0.054, **(first or {})})
    return ranks(*each)


STARVED = pace(loader=0.45)
GROWS = Volume(TOKENS, "all_gather", 30, early=1.1e6, late=9.7e6, rises=0.97)
SLOWLY = dataclasses.replace(GROWS, calls=67, early=492494.0, late=514526.0, rises=1.0, all=1216)
CHATTY = pace(collectives=400, size=4, waiting=0.6)


def growing(**changes: Any) -> dict[str, Any]:
    payload = dataclasses.replace(GROWS, **changes)
    return ranks(pace(payloads=(payload,)), pace(payloads=(payload,)))


BURSTS: dict[str, Any] = {
    "step": 0.012,
    "mean": 0.11,
    "loader": 0.6,
    "workers": 3,
    "pauses": tuple(range(0, 60, 3)),
}
LOADER, SMALL, SLOW = "loader-bound", "small-collectives", "rank-slow"


def pinned(*cpus: tuple[int, ...]) -> dict[str, Any]:
    """Ranks of a node, and the CPUs on which each may run; none where it is not bound."""
    return ranks(*(pace(pinned=of) for of in cpus))


WARN = Status.WARN


def table(waiting: float = 0.45, **changes: Any) -> dict[str, Any]:
    """Two ranks whose model has a large table of which few rows are used."""
    one = Table("table.weight", 150_000, 64, 38_400_000, 0.022, 38_900_000)
    needless = Needless(tables=(dataclasses.replace(one, **changes),))
    return ranks(*[pace(needless=needless, waiting=waiting)] * 2)


def constants(many: int, gradients: int = 6 << 20) -> dict[str, Any]:
    """Two ranks whose model in DDP has `many` MiB of buffers."""
    made = SharedBuffers(
        many << 20, gradients, 10, "blocks.0.alibi [1, 4, 768, 768] float32", TOKENS
    )
    return ranks(*[pace(buffers=made)] * 2)


EIGHT = pace(step=0.2, mean=0.2, threads=8, cpus=1.0, ran=0.2, unserved=0.55, cpu=0.16)


def threaded(used: float, other: float = 0.0, gap: float = 0.8) -> dict[str, Any]:
    """Irregular steps; a thread of the first rank uses so much of a CPU, and one of the other."""
    usual = {"step": 0.02, "mean": 0.08}
    return ranks(
        pace(waiting=0.1, thread=BusyThread("reporter", used, TOKENS), **usual),
        pace(waiting=0.1 + gap, thread=BusyThread("reporter", other), **usual),
    )


HEALTHY = (
    Case("irregular steps and a thread that hardly computes", threaded(0.2)),
    Case("threads on both ranks", threaded(0.9, 0.6)),
    Case("a thread that keeps nobody waiting", threaded(0.9, gap=0.3)),
    Case(
        "workers that deliver together: every third step waits",
        ranks(*[pace(**BURSTS)] * 2),
        LOADER,
        WARN,
        subject="n1 · rank 0",
    ),
    Case("a pause now and then", ranks(*[pace(**BURSTS | {"pauses": (0, 9, 31, 33, 58)})] * 2)),
    Case("balanced", waits(0.2, 0.22, 0.19, 0.2)),
    Case("one rank", ranks(FINE)),
    Case("no distributed job", {"n1": FINE}),
    Case("two ranks, balanced", waits(0.3, 0.35)),
    Case("all wait: the network, or the buckets", waits(0.6, 0.62, 0.58, 0.61)),
    Case("nobody waits: NCCL", waits(0.0, 0.0, 0.0, 0.0, cuda=True)),
    Case("29 % for data", ranks(pace(loader=0.29), pace(loader=0.28))),
    Case("data takes 40 % of 12 ms", ranks(pace(step=0.012, loader=0.4, mean=0.013))),
    Case("data behind the GPU's back", ranks(pace(loader=0.45, cuda=True))),
    Case("all data in one validation", ranks(pace(loader=0.8, mean=1.0))),
    Case("data of 7 steps", ranks(pace(loader=0.9, steps=7))),
    Case("9 looks", waits(0.0, 1.0, looks=9)),
    Case("7 steps", waits(0.0, 1.0, steps=7)),
    Case("no steps", ranks(Pace(), Pace())),
    Case("400 that nobody waits in", ranks(pace(collectives=400, size=4, waiting=0.1))),
    Case("60 of 1 MiB", ranks(pace(collectives=60, size=1 << 20, waiting=0.5))),
    Case("49 small ones", ranks(pace(collectives=49, size=4, waiting=0.5))),
    Case("payloads that vary", growing(late=1.4e6, rises=0.5)),
    Case("a payload that starts over", growing(late=1.2e6, rises=0.9)),
    Case("7 calls", growing(calls=7)),
    *(
        Case(name, ranks(*[pace(needless=of)] * 2))
        for name, of in (
            ("a profile of 10 steps", Needless(Profiled(40, 10, TOKENS))),
            ("every third step", Needless(gathered=(Gathered(TOKENS, 1, 60, 20),))),
            ("no_sync with its forward", Needless(no_sync=NoSync(0, 180))),
            ("long epochs", Needless(starts=WorkerStarts(9, 3.0, 60.0))),
            ("a second epoch", Needless(starts=WorkerStarts(3, 3.0, 5.0))),
            ("a kind of shapes in turn", Needless(compiled=Compiled(7, 30.0, 40.0))),
            ("compiled in the beginning", Needless(compiled=Compiled(9, 30.0, 200.0))),
            ("a small function", Needless(compiled=Compiled(9, 2.0, 4.0))),
            ("a collection now and then", Needless(collected=Collected(3, 1.2, 0.4, 30.0))),
            ("short collections", Needless(collected=Collected(900, 12.0, 0.03, 30.0))),
            ("two long ones", Needless(collected=Collected(2, 6.0, 3.0, 30.0))),
        )
    ),
    Case("a table behind a fast network", table(waiting=0.1)),
    Case("a table that is used", table(used=0.4)),
    Case("a small table", table(whole=120_000_000)),
    Case("hardly more, in many calls", growing(calls=67, late=1.101e6, rises=1.0, all=1216)),
    Case("grows to 100 kB", growing(early=1e3, late=1e5)),
    Case("grows to twice as much", growing(late=2.2e6)),
    Case("to 60 KiB in each of 90 calls", growing(calls=90, rises=1.0, early=1e3, late=6e4)),
    Case("by a third, in each of 60 calls", growing(calls=60, rises=1.0, late=1.5e6)),
    Case("of a sorted part", growing(calls=22, rises=1.0, early=1e5, late=1.5e5, all=180)),
    Case("21 that rise, of 30", growing(calls=21, rises=1.0, early=4e5, late=6.4e5, all=30)),
    Case("sizes not known", ranks(pace(collectives=400, size=0, waiting=0.5))),
    Case(
        "60 that take 0.1 s each",
        ranks(pace(collectives=60, size=4, waiting=0.6, step=10.0, mean=10.0)),
    ),
    Case(
        "small ones in one long evaluation",
        ranks(pace(collectives=400, size=4, waiting=0.6, mean=1.0)),
    ),
    Case("one of them does not wait", ranks(CHATTY, dataclasses.replace(CHATTY, waiting=0.25))),
    Case("one long evaluation on rank 0", waits(0.02, 0.6, 0.6, 0.6, mean=0.67)),
    Case("two of them", waits(0.02, 0.6, 0.6, 0.6, mean=0.67, steps=100, pauses=(19, 80))),
    Case(
        "long steps at odd times",
        waits(0.02, 0.6, 0.6, 0.6, mean=0.67, steps=100, pauses=(3, 5, 9, 60, 62, 95)),
    ),
    Case(
        "pauses that are over",
        waits(0.02, 0.6, 0.6, 0.6, mean=0.67, steps=300, pauses=(9, 19, 29, 39, 49, 59)),
    ),
    Case(
        "work in each 20 steps",
        waits(0.02, 0.6, 0.6, 0.6, mean=0.67, steps=130, pauses=(19, 39, 59, 80, 99, 119)),
        "rank-slow",
        WARN,
    ),
    Case("of two", waits(0.02, 0.7, mean=0.67)),
    Case("ragged batches", waits(0.3, 0.45, 0.5, 0.4)),
    Case("39 points of two", waits(0.1, 0.49, looks=120)),
    Case("29 points of four", waits(0.14, 0.43, 0.43, 0.43, looks=120)),
    Case("a rank waits more, not less", waits(0.9, 0.1, 0.1, 0.1)),
    Case("a half waits", waits(0.1, 0.1, 0.8, 0.8)),
    Case("beside the backward pass of all", waits(0.05, 0.02, pending=0.8)),
    Case("all different", waits(0.0, 0.3, 0.6, 0.9)),
    Case("steps of 5 ms", waits(0.0, 0.9, 0.9, 0.9, step=0.005, mean=0.006)),
    Case("ten looks of two scatter", waits(0.2, 0.6, looks=10)),
    Case(
        "another pace: an evaluator",
        ranks(pace(waiting=0.0, step=2.0, mean=2.0), pace(waiting=0.9)),
    ),
    Case("it calls nothing: an actor", ranks(pace(waiting=0.0, collectives=0), *[CHATTY] * 4)),
    Case("GPUs: own code that is hidden", on_gpus(0.03, 0.001, 0.001, first={"busy": 0.97})),
    Case("GPUs: perhaps hidden", on_gpus(0.03, 0.001, 0.001)),
    Case("GPUs: on all ranks", on_gpus(0.05, 0.05, 0.05, 0.05, first={"busy": 0.1})),
    Case("GPUs: on half of them", on_gpus(0.05, 0.05, 0.001, first={"busy": 0.1})),
    Case("GPUs: rank 0 alone reads the loss", on_gpus(0.05, 0.001, 0.001, first={"synced": 0.9})),
    Case("GPUs: rank 0 copies what waits for it", on_gpus(0.05, 0.001, first={"copied": 0.9})),
    Case("GPUs: 9 ms", on_gpus(0.0095, 0.0002, mean=0.012, first={"busy": 0.1})),
    Case("GPUs: a log of 20 ms", on_gpus(0.02, 0.001, 0.001, first={"busy": 0.6})),
    Case("GPUs: another pace", on_gpus(0.05, 0.001, first={"busy": 0.1, "mean": 2.0})),
    Case("GPUs: pace not known", on_gpus(0.05, 0.001, mean=0.0)),
    Case(
        "the CPU: own code of one rank",
        on_gpus(0.05, 0.001, 0.001, cuda=False, nccl=False, pending=0.2),
    ),
    Case("the CPU: the others don't wait", saves(0.06, 0.0, backward=0.0)),
    Case("the CPU: on both", saves(0.06, 0.06)),
    Case("the CPU: on both, and neither waits", gathers(0.01, 0.05)),
    Case("the CPU: a fifth of the step", gathers(0.0, 0.2, outside=0.06)),
    Case("the CPU: waits elsewhere", gathers(0.0, 0.1)),
    Case("the CPU: each for the other", gathers(0.33, 0.33)),
    Case("the CPU: 8 ms of 100", saves(0.008, 0.0, backward=0.008)),
    Case("blocked", Missing(Cause.BLOCKED, by="job.ranks")),
    Case("one was not seen", ranks(FINE, Missing(Cause.NOT_APPLICABLE, "3 steps timed"))),
)

CASES = (
    *(
        Case(name, ranks(*each), "threads-many", Status.WARN)
        for name, each in (
            ("eight threads each on two CPUs", (EIGHT, EIGHT)),
            ("one rank, and a cgroup with two CPUs", (dataclasses.replace(EIGHT, cpus=2.0),)),
            ("bound to two CPUs", (dataclasses.replace(EIGHT, cpus=32.0, pinned=(0, 1)),) * 2),
        )
    ),
    *(
        Case(name, ranks(*each))
        for name, each in (
            ("one thread each, too few CPUs", (dataclasses.replace(EIGHT, threads=1),) * 8),
            ("as many as CPUs", (dataclasses.replace(EIGHT, cpus=8.0),) * 2),
            ("that wait for a GPU", (dataclasses.replace(EIGHT, cuda=True),) * 2),
            ("that have nothing to do", (dataclasses.replace(EIGHT, unserved=0.05),) * 2),
            (
                "others take the CPUs, and all is done in one",
                (dataclasses.replace(EIGHT, cpu=0.05),) * 2,
            ),
            ("not known how many", (dataclasses.replace(EIGHT, threads=0),) * 2),
            ("the kernel does not count", (dataclasses.replace(EIGHT, ran=0.0, unserved=0.0),) * 2),
        )
    ),
    Case("both ranks on one CPU", pinned((0,), (0,)), "cpus-shared", Status.WARN),
    Case("four on two", pinned(*[(0, 1)] * 4), "cpus-shared", Status.WARN),
    Case("a CPU each", pinned((0,), (1,))),
    Case("two on two, with which they share nothing else", pinned((0, 1), (0, 1))),
    Case("free to run anywhere", pinned((), ())),
    Case("one is bound", pinned((0,), ())),
    *HEALTHY,
    Case("a thread computes", threaded(0.9), SLOW, WARN, subject="n1 · rank 0"),
    Case("data", ranks(STARVED), LOADER, WARN, subject="n1 · rank 0"),
    Case("data on all", ranks(*[STARVED] * 4), LOADER, WARN, subject="n1 · rank 0"),
    Case("data on one", ranks(FINE, FINE, STARVED), LOADER, WARN, subject="n1 · rank 2"),
    Case("30 %", ranks(pace(loader=0.3)), LOADER, WARN),
    Case("80 % with a GPU", ranks(pace(loader=0.8, cuda=True)), LOADER, WARN),
    Case("mean not known", ranks(pace(loader=0.8, mean=0.0)), LOADER, WARN),
    Case("no distributed job, data", {"n1/0": STARVED}, LOADER, WARN, subject="n1 · rank 0"),
    Case(
        "a list, and the latest of many calls",
        ranks(*[pace(payloads=(SLOWLY,))] * 2),
        "payload-grows",
        WARN,
        subject="n1 · rank 0",
    ),
    *(
        Case(name, ranks(pace(needless=of), pace()), code, WARN, subject="n1 · rank 0")
        for name, code, of in (
            ("a profiler", "profiler-on", Needless(Profiled(40, 400, TOKENS))),
            (
                "averaged weights",
                "parameters-gathered",
                Needless(gathered=(Gathered(TOKENS, 1, 60, 60),)),
            ),
            ("no_sync around the backward", "no-sync-late", Needless(no_sync=NoSync(180))),
            (
                "workers for each epoch",
                "workers-restarted",
                Needless(starts=WorkerStarts(9, 3.1, 5.4, HERE)),
            ),
            (
                "a list that is another one each time",
                "recompiled",
                Needless(compiled=Compiled(16, 20.0, 44.0, "len(keep) == 4", HERE)),
            ),
            (
                "a million objects",
                "garbage-collected",
                Needless(collected=Collected(24, 9.0, 0.4, 30.0, 9.0, HERE)),
            ),
        )
    ),
    Case("a table of which few rows are used", table(), "gradient-mostly-zero", WARN),
    Case("large constants in the model", constants(59), "buffers-broadcast", WARN),
    Case("small ones in a small model", constants(7, 1 << 20)),
    Case("as large as its gradients", constants(59, 40 << 20)),
    Case("one rank broadcasts to nobody", ranks(*[constants(59)["n1/0"]])),
    Case(
        "a profiler of a rank of which little is known",
        ranks(Pace(needless=Needless(Profiled(40, 400)))),
        "profiler-on",
        WARN,
    ),
    Case("to 90 KiB", growing(calls=90, rises=1.0, early=1e3, late=9e4), "payload-grows", WARN),
    Case(
        "a metric of all steps, of whose calls few are kept",
        growing(calls=22, rises=1.0, early=494592, late=546816, all=180),
        "payload-grows",
        WARN,
    ),
    Case("a list that is sent whole", growing(), "payload-grows", WARN, subject="n1 · rank 0"),
    *(
        Case(name, ranks(*[pickles(**more)] * 2), "objects-in-step", WARN, subject="n1 · rank 0")
        for name, more in (
            ("predictions are gathered as objects", {}),
            ("from a GPU", {"late": 8.2e6, "cuda": True}),
        )
    ),
    *(
        Case(name, ranks(*[pickles(**more)] * 2))
        for name, more in (
            ("a few objects from a GPU", {"cuda": True, "late": 9e5}),
            ("objects now and then", {"all": 6}),
            ("objects in a short part of a step", {"outside": 0.02}),
            ("objects elsewhere", {"between": HERE}),
            ("a small object", {"late": 900.0}),
            ("bytes of a tensor", {"sized": False}),
        )
    ),
    Case("objects on one of two", ranks(pickles(), pace())),
    Case("400 numbers", ranks(*[CHATTY] * 3), SMALL, WARN, subject="n1 · rank 0"),
    Case(
        "twice as much after 60 calls, of which each is larger",
        growing(calls=60, rises=1.0, late=2.2e6),
        "payload-grows",
        WARN,
    ),
    Case(
        "inside of backward(): small buckets",
        ranks(*[pace(collectives=180, size=2400, waiting=0.0, pending=0.8)] * 2),
        SMALL,
        WARN,
    ),
    Case("50 of 63 KiB", ranks(pace(collectives=50, size=64511, waiting=0.3)), SMALL, WARN),
    Case("one saves in each step", saves(0.06, 0.0), SLOW, WARN, subject="n1 · rank 0"),
    Case("one writes, the others gather", gathers(0.0, 0.32), SLOW, WARN, subject="n1 · rank 0"),
    Case("one of two", slow(0.0, 0.95), SLOW, WARN, subject="n1 · rank 0"),
    Case("one of three", waits(0.9, 0.03, 0.94), SLOW, WARN, subject="n1 · rank 1"),
    Case("one of four", waits(0.9, 0.92, 0.95, 0.05), SLOW, WARN, subject="n1 · rank 3"),
    Case(
        "inside of backward()",
        ranks(pace(waiting=0.02, pending=0.05), pace(waiting=0.02, pending=0.95)),
        SLOW,
        WARN,
        subject="n1 · rank 0",
    ),
    Case("30 points of four", waits(0.15, 0.45, 0.46, 0.45, looks=120), SLOW, WARN),
    Case("two of eight", waits(*[0.8] * 6, 0.1, 0.12), SLOW, WARN, subject="n1 · rank 6"),
    Case("GPUs", on_gpus(0.05, 0.001, 0.001), SLOW, WARN, subject="n1 · rank 0"),
    Case(
        "the other waits where it copies its batch to the GPU",
        on_gpus(0.05, 0.052, mean=0.054, copied=0.93, first={"copied": 0.02}),
        SLOW,
        WARN,
        subject="n1 · rank 0",
    ),
    Case("of two GPUs", on_gpus(0.05, 0.0003), SLOW, WARN, subject="n1 · rank 0"),
    Case("half of a step", on_gpus(0.03, 0.001, first={"busy": 0.5}), SLOW, WARN),
    Case(
        "all read the loss, the others longer",
        ranks(
            *[pace(cuda=True, nccl=True, mean=0.06, step=0.06, outside=0.055, synced=0.9)] * 3,
            pace(cuda=True, nccl=True, mean=0.06, step=0.06, outside=0.055, synced=0.05, busy=0.2),
        ),
        SLOW,
        WARN,
        subject="n1 · rank 3",
    ),
    Case(
        "steps of a second on GPUs, counted",
        ranks(
            *[
                pace(cuda=True, nccl=True, mean=1.0, step=1.0, pending=p, waiting=0.0)
                for p in (0.05, 0.9)
            ]
        ),
        SLOW,
        WARN,
        subject="n1 · rank 0",
    ),
    Case(
        "Gloo carries what is on GPUs",
        ranks(*[pace(cuda=True, pending=p, waiting=0.0) for p in (0.05, 0.9)]),
        SLOW,
        WARN,
        subject="n1 · rank 0",
    ),
    Case("one that is seen", ranks(FINE, pace(steps=0), STARVED), LOADER, subject="n1 · rank 2"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(job_pace, case)


def findings(saw: Any) -> list[Any]:
    return judged(job_pace, Case("", saw))


def test_one_cause_is_named_once() -> None:
    """Who waits for data does not wait for others, and these wait for it."""
    late = pace(loader=0.6, waiting=0.02)
    found = findings(ranks(late, *[pace(waiting=0.7, loader=0.0)] * 3))
    assert [(f.code, str(f.subjects[0])) for f in found] == [(LOADER, "n1 · rank 0")]
    assert "· the others 0 % ·" in found[0].saw
    # the many small ones are where the others wait for the slow one
    found = findings(ranks(dataclasses.replace(CHATTY, waiting=0.05), *[CHATTY] * 3))
    assert [f.code for f in found] == [SLOW]


def test_what_is_said_of_a_slow_rank() -> None:
    (finding,) = findings(slow(0.02, 0.9, 0.95))
    assert finding.saw == (
        "rank 0 waits for a collective in 2 % of the samples, the others in 90-95 % · rank 0 is "
        "most often at /home/u/train.py:31 in tokenise (90 %), the others elsewhere · "
        "210 ms per step"
    )
    assert (finding.blame, finding.confidence) == (Blame.JOB, Confidence.LIKELY)
    assert finding.fields["line"] == "/home/u/train.py:31"
    (finding,) = findings(slow(0.02, 0.9, 0.95, at=BACKWARD))
    assert "the others, too, when they don't wait" in finding.saw
    assert finding.blame is Blame.UNKNOWN, "the same work: a slow machine, or more of it"
    (finding,) = findings(waits(0.02, 0.9, own=None))
    assert "most often" not in finding.saw
    assert finding.blame is Blame.UNKNOWN


def test_what_is_said_of_a_host_that_its_gpu_waits_for() -> None:
    (found,) = findings(on_gpus(0.05, 0.0003, 0.001, first={"busy": 0.12}))
    assert found.saw == (
        "rank 0 is busy for 50 ms of 54 ms per step between the optimizer and the next forward, "
        "mostly at /home/u/train.py:31; the others for 1 ms · its GPU busy 12 % of the time"
    )
    assert (found.blame, found.confidence) == (Blame.JOB, Confidence.LIKELY)
    (found,) = findings(on_gpus(0.05, 0.0003))
    assert found.confidence == Confidence.POSSIBLE
    assert found.alternatives == ("its GPU computes at the same time, and sets the pace",)


def test_who_waits_in_a_collective_meanwhile_is_not_busy() -> None:
    (found,) = findings(gathers(0.0, 0.32))
    assert found.saw.endswith("mostly at /home/u/train.py:31; the others for 4 ms")


def test_what_is_said_of_data() -> None:
    (finding,) = findings(ranks(FINE, dataclasses.replace(STARVED, workers=2)))
    assert finding.saw == (
        "rank 1 waits 45 % of the time for the DataLoader, 94 ms of 210 ms per step · "
        "the others 3 % · num_workers=2, 8 CPUs per rank"
    )
    assert finding.fields["workers"] == "8"

    def advised(**changes: Any) -> str:
        (finding,) = findings(ranks(dataclasses.replace(STARVED, **changes)))
        return str(finding.fields["workers"])

    assert advised(cpus=3.5, workers=0) == "3"
    assert advised(cpus=0.5, workers=0) == "1"
    assert advised(cpus=96, workers=0) == "8"
    assert advised(cpus=2, workers=2).startswith("what it is")
    assert advised(cpus=0, workers=0).startswith("more")
    (finding,) = findings(ranks(pace(loader=0.8, cuda=True)))
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.alternatives


def test_the_function_that_makes_the_batches_is_named_where_it_makes_most_of_them() -> None:
    line = Frame("data.py", 66, "words", own=True)

    def said(part: float) -> tuple[str, object]:
        starved = dataclasses.replace(STARVED, loading=line, loading_part=part)
        (finding,) = findings(ranks(starved))
        return finding.saw, finding.fields["work"]

    saw, work = said(0.4)
    assert "per step · most of it in words at data.py:66 · num_workers=" in saw
    assert work == "what data.py:66 does"
    saw, work = said(0.1)
    assert "data.py" not in saw
    assert work == "the decoding and resizing"


def test_what_is_said_of_small_ones() -> None:
    (finding,) = findings(ranks(*[CHATTY] * 6))
    assert finding.saw == (
        "400 collectives per step, half of them of 4 B or less · 60 % of the samples have one open "
        "· 210 ms per step"
    )
    assert len(finding.subjects) == 6


def test_many_are_named_with_a_few() -> None:
    (finding,) = findings(ranks(*[STARVED] * 64))
    assert finding.saw.startswith("ranks 0-63 wait 45 % of the time")


@given(st.integers(2, 16), st.integers(10, 200), st.floats(0, 1), st.integers(0, 1 << 32))
@settings(max_examples=300, deadline=None)
def test_ranks_that_wait_alike_are_not_told_apart(
    count: int, looks: int, part: float, seed: int
) -> None:
    """All of them wait in the same part of the time, and are looked at a few times."""
    made = random.Random(seed)
    seen = [sum(made.random() < part for _ in range(looks)) / looks for _ in range(count)]
    assert findings(waits(*seen, looks=looks)) == []


@given(st.integers(2, 16), st.data(), st.integers(30, 200), st.floats(0, 0.05))
@settings(max_examples=100, deadline=None)
def test_a_rank_that_all_wait_for_is_named(
    count: int, data: st.DataObject, looks: int, own: float
) -> None:
    guilty = data.draw(st.integers(0, count - 1))
    parts = [own if i == guilty else data.draw(st.floats(0.86, 0.95)) for i in range(count)]
    (finding,) = findings(waits(*parts, looks=looks))
    assert (finding.code, [s.name for s in finding.subjects]) == (SLOW, [str(guilty)])


@pytest.mark.parametrize(
    "name", ["step", "mean", "loader", "waiting", "pending", "own_part", "size", "cpus"]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_numbers_that_are_none_are_left_out(name: str, value: float) -> None:
    bad = dataclasses.replace(STARVED, **{name: value})
    assert findings(ranks(bad, bad)) == []
    assert job_pace.measured(world("job.pace", ranks(bad))).text == ""


def test_what_is_measured() -> None:
    seen = job_pace.measured(world("job.pace", waits(0.3, 0.34, 0.4)))
    assert seen.text == "210 ms per step · 30-40 % in collectives · 3 % for data"
    assert seen.values["collectives_a_step"] == 4
    assert job_pace.measured(world("job.pace", ranks(Pace()))).text == ""


def test_of_gpus_that_wait_for_each_other_the_host_knows_nothing() -> None:
    seen = job_pace.measured(world("job.pace", on_gpus(0.001, 0.001)))
    assert seen.text == "54 ms per step · 3 % for data"
    assert seen.lanes is not None
    assert not any(
        "in collectives" in span.text for lane in seen.lanes.lanes for span in lane.spans
    )


# --- observed from a record ---


def record(tmp_path: Path, *paces: Pace) -> dict[str, str]:
    life = Life(WatchedCommand(("python", "train.py"), 0, "ended", 12.0))
    path = tmp_path / "record.json"
    made = RehearsalRecord(tuple(Rehearsed(life, pace=p) for p in paces))
    path.write_text(json.dumps(encode(made)))
    return {"record": str(path)}


def test_a_record_is_read(tmp_path: Path) -> None:
    options = record(tmp_path, FINE, dataclasses.replace(STARVED, rank=1))
    seen = job_pace.observe(Host(), context(local_rank=1, options=options))
    assert seen == dataclasses.replace(STARVED, rank=1)
    round_trips(seen)


def test_the_cpus_of_a_rank_are_its_part_of_the_mask(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Cpus_allowed_list:\t0-15\n")
    record(tmp_path, pace(cpus=0.0))
    options = {"record": "/record.json"}
    ctx = context(options=options, local_world_size=4, topology=topology(4))
    assert job_pace.observe(Host(str(tmp_path)), ctx).cpus == 4.0
    (tmp_path / "proc/self/status").write_text("Name:\tpython\n")
    assert job_pace.observe(Host(str(tmp_path)), ctx).cpus == 0.0


def test_too_little_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="1 step timed, 60 samples: too few"):
        job_pace.observe(Host(), context(options=record(tmp_path, pace(steps=1))))
    with pytest.raises(NotApplicable, match="rehearse"):
        job_pace.observe(Host(), context())
    with pytest.raises(CannotObserve):
        job_pace.observe(Host(), context(options={"record": str(tmp_path / "none.json")}))


def test_a_thread_is_named_with_its_line() -> None:
    (found,) = judged(job_pace, Case("", threaded(0.9)))
    assert f"its thread 'reporter' uses 90 % of a CPU, mostly at {TOKENS} in tokenise" in found.saw
    assert "80 ms per step" in found.saw
    assert str(TOKENS) in found.fields["line"]
    (found,) = judged(job_pace, Case("", slow(0.05, 0.6, 0.6, 0.6)))
    assert "thread" not in found.saw
