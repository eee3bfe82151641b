"""Does a DataLoader with worker processes work, and how many batches per second does it give?

Level        standard
Looks at     a small data set of images that takes about a millisecond per item, loaded without
             workers, with one, and with as many as a rank has CPUs (at most 8); pinned memory where
             there is a GPU; batches per second of each
Fails if     a worker dies (SIGBUS: /dev/shm is full), can't hand over its batch, or twice does not
             start or returns no batch in time; memory can't be pinned
Warns if     never: the speed of the job's own data set only shows in the job
Undecided    torch is not installed; loading without workers takes too long; the workers waited for
             a CPU for half of the time or more
Not covered  the job's own data set and its storage; all ranks loading at once
Seen as      "DataLoader worker (pid 123) is killed by signal: Bus error. It is possible that
             dataloader's workers are out of shared memory", "unable to allocate shared memory(shm)
             for file", "received 0 items of ancdata", "DataLoader worker (pid(s) 123) exited
             unexpectedly", "DataLoader timed out after", a first batch that never comes
"""

from __future__ import annotations

import os
import random
import re
import select
import signal
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.cpu_wait import cpu_wait
from preflight.domains.torch.steps import Steps, Trouble
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, plural
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Command,
    Confidence,
    FindingType,
    Found,
    Measured,
    World,
    too_little_cpu,
)

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.TRAINING,
    budget=20.0,
    needs=("host.limits",),
    level=Level.STANDARD,
    requires=frozenset({Requirement.TORCH}),
    torch=True,
    # torch 2.3 to 2.5 import sympy for the first batch that a worker hands over: world.ddp's server
    # has done so
    preload=("torch._dynamo",),
    disturbs="some MiB of /dev/shm",
)

# more workers rarely help; and two batches of each of eight still fit into the 64 MiB of /dev/shm
# that a container has
WORKERS_MAX = 8
# pictures are stored with SOURCE pixels a side and cut to SIDE, as most models of vision want them;
# a batch is 2.3 MiB
SOURCE, SIDE, BATCH = 256, 224, 4
# batches that each worker makes; the first of each is not timed
BATCHES = 6
# parts of the budget for which the workers' start is waited for, and then one batch; where that was
# too little, new workers get the second
PATIENCE = (0.25, 0.4)

SHM = "/dev/shm"
NO_WORKERS = "0 workers"
IMPORTS = "imports of workers"

FINDINGS = {
    "shm-full": FindingType(
        headline="DataLoader workers on {at} run out of shared memory",
        who="job author",
        cause="a container's default of 64 MiB for /dev/shm, or files that ended jobs left there",
        means="'DataLoader worker (pid …) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory'",
        text="start the container with --shm-size=8g (docker, podman) or an emptyDir with medium "
        "Memory at /dev/shm (pod); num_workers=0 works until then",
        commands=(Command("df -h /dev/shm", "the node"),),
        blame=(Blame.JOB, Blame.UNKNOWN),
    ),
    "shm-unusable": FindingType(
        headline="DataLoader workers on {at} can't use /dev/shm",
        cause="a /dev/shm without mode 1777, or mounted read-only",
        means="'unable to open shared memory object </torch_…> in read-write mode'",
        text="remount it: mount -o remount,rw,mode=1777 /dev/shm",
        commands=(Command("grep /dev/shm /proc/mounts", "the node"),),
        blame=Blame.NODE,
    ),
    "files-few": FindingType(
        headline="DataLoader workers on {at} run out of open files",
        who="job author",
        cause="a low limit on open files: every tensor of a batch in flight needs one",
        means="'received 0 items of ancdata' or 'Too many open files' after a few batches",
        now="ulimit -n 65536   in the job script",
        text="raise the limit on open files, or call "
        "torch.multiprocessing.set_sharing_strategy('file_system'), which needs fewer",
        blame=Blame.JOB,
    ),
    "worker-died": FindingType(
        headline="a DataLoader worker died on {at}: {seen}",
        who="job author",
        cause="the kernel's OOM killer (signal Killed), or a library that does not survive a fork",
        means="'DataLoader worker (pid(s) …) exited unexpectedly', 'DataLoader worker (pid …) is "
        "killed by signal: Killed'",
        text="request more memory, or use fewer workers; num_workers=0 shows whether loading "
        "itself works",
        commands=(Command("dmesg -T | tail -n 20", "the node"),),
    ),
    "worker-hung": FindingType(
        headline="a DataLoader worker hangs on {at}: {seen}",
        who="job author",
        cause="a lock that another thread held at the fork: OpenMP, OpenCV, a tracing library",
        means="the first batch never comes, GPUs idle, no message",
        text="pass multiprocessing_context='forkserver' to the DataLoader, which avoids forking a "
        "threaded process; or num_workers=0",
        was=("worker-stuck",),
    ),
    "pin-failed": FindingType(
        headline="pinning memory fails on {at}: {seen}",
        cause="a driver that refuses page-locked memory: the limit of the container or a faulty "
        "GPU",
        means="'Caught RuntimeError in pin memory thread' at the first batch",
        text="raise the memory limit, or pass pin_memory=False; gpu.health checks the GPU",
    ),
    "loader-failed": FindingType(
        headline="the DataLoader fails on {at}: {seen}",
        who="job author",
        cause="an error that this check has no more specific finding for",
        means="the DataLoader raises the error above at its first batches",
        text="read the full error (-v); num_workers=0 shows whether loading itself works",
    ),
}

LATE = r"timed out after|did not start"
# what torch says, or we do -> finding
TEXTS = (
    (r"Bus error|shared memory limit|No space left|ENOSPC", "shm-full"),
    (r"ancdata|Too many open files", "files-few"),
    (r"unable to \w+ (the )?(shared memory|file </torch)|shm_open", "shm-unusable"),
    (r"pin memory|pin_memory|cudaHostAlloc|CUDA", "pin-failed"),
    (LATE, "worker-hung"),
    (r"killed by signal|exited unexpectedly", "worker-died"),
)


ALIKE = 0.9
"""Rates of which the lower is this part of the higher are the same."""


@dataclass(frozen=True, slots=True)
class LoaderRate:
    """Batches a second once all workers were there; `start` is the time to the first batch."""

    workers: int
    pinned: bool
    batches_s: float
    start: float


@dataclass(frozen=True, slots=True)
class Loading:
    """What reading gave, as far as it went. `cpus` is what this process may use, shared by `ranks`;
    `advised` is the number of workers for which each of them has CPUs."""

    cpus: float
    ranks: int
    advised: int
    rates: tuple[LoaderRate, ...]
    trouble: Trouble | None = None


class Pictures:
    """A data set whose every item is unpacked, cut and normalised, which takes about 1 ms."""

    def __init__(self, count: int) -> None:
        # sixteen different bytes: packs to the half and is unpacked like a picture, bit by bit
        noise = random.Random(0).randbytes(SOURCE * SOURCE * 3)
        self.count = count
        self.packed = zlib.compress(noise.translate(bytes(b & 15 for b in range(256))), 1)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        import torch

        pixels = torch.frombuffer(bytearray(zlib.decompress(self.packed)), dtype=torch.uint8)
        top, left = index % (SOURCE - SIDE), index * 7 % (SOURCE - SIDE)
        cut = pixels.view(SOURCE, SOURCE, 3)[top : top + SIDE, left : left + SIDE]
        return cut.permute(2, 0, 1).to(torch.float32).sub_(8.0).div_(4.6)


def observe(host: Host, ctx: Context) -> Loading:
    import torch

    torch.set_num_threads(1)
    cpus, ranks = usable_cpus(host), max(1, ctx.local_world_size)
    fitting = min(WORKERS_MAX, max(1, int(cpus / ranks)))
    steps = Steps(ctx)
    rates: list[LoaderRate] = []
    with steps.until_trouble():
        for workers in sorted({0, 1, fitting}):
            if workers == 1:
                steps.at(IMPORTS)
                _import_what_workers_need()
            rates.append(_read_patiently(ctx, steps, workers, False))
        steps.at("CUDA")
        if torch.cuda.is_available():
            rates.append(_read_patiently(ctx, steps, fitting, True))
    return Loading(cpus, ranks, fitting, tuple(rates), steps.trouble)


def _step(workers: int, pinned: bool) -> str:
    return plural(workers, "worker") + (", pinned" if pinned else "")


def _import_what_workers_need() -> None:
    """What each of them would import when it hands over its first batch, for seconds."""
    import torch
    from torch.multiprocessing import reductions

    reductions.reduce_tensor(torch.zeros(1))


def _read_patiently(ctx: Context, steps: Steps, workers: int, pinned: bool) -> LoaderRate:
    """The rate, at the second look where the first found a worker too slow: a busy machine or a
    slow file system is no worker that hangs."""
    step, (first, second) = _step(workers, pinned), PATIENCE
    steps.at(step)
    try:
        return _read_batches(workers, pinned, ctx.seconds * first)
    except CannotObserve:
        pass
    except RuntimeError as error:
        if not re.search(LATE, str(error)):
            raise
    steps.at(f"{step}, again")
    return _read_batches(workers, pinned, ctx.seconds * second)


def _starved(seconds: float) -> str:
    """That the workers had no CPU for half of these seconds; empty where they had."""
    from torch.multiprocessing import active_children

    waits = [cpu_wait(f"/proc/{worker.pid}/schedstat") for worker in active_children()]
    return too_little_cpu(max(waits, default=0.0), seconds)


def _end_workers() -> None:
    """Kill workers that hang, for which torch would wait 5 s each; its handler of SIGCHLD would
    take their end for an accident."""
    from torch.multiprocessing import active_children

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for worker in active_children():
        worker.kill()
        worker.join(1.0)


def _unlink_left(pids: Sequence[int]) -> None:
    """Remove what torch leaves in /dev/shm where that is full: it makes a file of the name
    torch_PID_…, and fails before it has unlinked it. The processes are ours, and have ended."""
    own = re.compile(f"torch_({'|'.join(map(str, pids))})_[0-9_]+")
    for name in os.listdir(SHM) if os.path.isdir(SHM) else ():
        path = os.path.join(SHM, name)
        try:
            if own.fullmatch(name) and os.lstat(path).st_uid == os.geteuid():
                os.unlink(path)
        except OSError:
            continue  # it is gone


def _read_batches(workers: int, pinned: bool, patience: float) -> LoaderRate:
    """Read BATCHES batches of each worker. When the first has come each of them has made about
    one: the others are timed."""
    from torch.utils.data import DataLoader

    makers = max(1, workers)
    pictures: Any = Pictures(BATCHES * makers * BATCH)
    started, say_started = os.pipe()

    def begin(worker: int) -> None:
        os.write(say_started, b"1")

    loader = DataLoader(
        pictures,
        batch_size=BATCH,
        num_workers=workers,
        pin_memory=pinned,
        timeout=patience if workers else 0,
        multiprocessing_context="fork" if workers else None,
        worker_init_fn=begin,
    )
    began = time.perf_counter()
    batches = iter(loader)
    try:
        _wait_for_start(started, workers, patience)
        next(batches)
        first = time.perf_counter()
        for _ in batches:
            pass
    except RuntimeError as error:
        why = _starved(time.perf_counter() - began)
        _end_workers()
        _unlink_left([os.getpid(), *(worker.pid for worker in getattr(batches, "_workers", ()))])
        if why and re.search(LATE, str(error)):
            raise CannotObserve(why) from error
        raise
    seconds = time.perf_counter() - first
    rate = (BATCHES - 1) * makers / max(seconds, 1e-6)
    return LoaderRate(workers, pinned, round(rate, 1), round(first - began, 4))


def _wait_for_start(started: int, workers: int, patience: float) -> None:
    """Until each worker has said so; torch's handler of SIGCHLD raises here where one dies."""
    until, there = time.monotonic() + patience, 0
    while there < workers:
        left = until - time.monotonic()
        if left <= 0 or not select.select([started], [], [], left)[0]:
            late = f"{workers - there} of {plural(workers, 'worker')}"
            raise RuntimeError(f"{late} did not start within {duration(patience)}")
        there += len(os.read(started, workers))


def usable_cpus(host: Host) -> float:
    """The CPUs that this process may use: its mask, or the smallest quota of its cgroups."""
    return min([float(len(host.affinity())), *(quota for quota, _ in host.cpu_quotas())])


def judge(world: World[Loading], expect: Expect) -> Iterator[Found]:
    for key, loading in world.seen.items():
        if trouble := loading.trouble:
            code = next((c for p, c in TEXTS if re.search(p, trouble.text)), "loader-failed")
            yield _finding(world, key, code, trouble.step, trouble.text)
    for key, missing in world.missing(Cause.TIMED_OUT, Cause.CRASHED).items():
        step, fate = missing.last_mark, missing.detail.rpartition("\n")[2]
        if step in ("", NO_WORKERS, IMPORTS, "CUDA"):
            continue  # without workers that says nothing about them
        if missing.cause is Cause.TIMED_OUT:
            saw = f"no end after {duration(missing.seconds)}"
            yield _finding(world, key, "worker-hung", step, saw)
        elif fate.startswith("killed by"):  # what else ends it is an exception of ours
            code = "shm-full" if "SIGBUS" in fate else "worker-died"
            yield _finding(world, key, code, step, fate).with_(blame=Blame.UNKNOWN)


def _finding(world: World[Loading], key: str, code: str, step: str, saw: str) -> Found:
    return Found(
        code,
        (world.subject(key),),
        saw=f"with {step}: {saw}",
        expected="batches",
        confidence=Confidence.LIKELY,
    )


def measured(world: World[Loading]) -> Measured:
    values = list(world.seen.values())
    if not values or not values[0].rates:
        return Measured()
    slowest = min(values, key=lambda v: v.rates[-1].batches_s)
    parts = [f"{r.batches_s:.0f}/s with {_step(r.workers, r.pinned)}" for r in slowest.rates]
    # the fewest that are as fast as any: what more of them add is within what a look varies
    best = max(rate.batches_s for rate in slowest.rates)
    advised = min(r.workers for r in slowest.rates if r.batches_s >= ALIKE * best)
    text = f"batches {' · '.join(parts)} · advised {advised} for each rank"
    rates = {_step(r.workers, r.pinned): r.batches_s for r in slowest.rates}
    return Measured(text, {"batches_per_second": rates, "advised_workers": advised})
