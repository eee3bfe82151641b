"""What one process of the rehearsed command has done so far, from one look to the next; and when
all of them together do nothing any more. No I/O: a look is data.

Stuck is said only of ranks that wait for each other (or for data) while nobody does anything that
shows: a rank that computes, reads or compiles is not stuck, however long the others wait for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import takewhile
from typing import Any

from preflight.domains.job.record import CLOSING, FRAMES, ChildProcess, Frame, Loader, Uncaught
from preflight.frozen import dataclass
from preflight.redact import redact
from preflight.rehearsal.client import frame_from_json, frames_from_json, mapping_or_empty
from preflight.sanitize import one_line

FAILURE = 300
"""Characters of the message of an exception."""
COLLECTIVES = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/c10d_logger.py",
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/nn/functional.py",
)
"""Files whose frame is the innermost one while a thread waits in a collective."""
MEETING = "/torch/distributed/rendezvous.py"
INIT = ("init_process_group", "rendezvous", "_store_based_barrier", "_new_process_group_helper")
LOADING = "/torch/utils/data/"
LOADER_WORKER = "pt_data_worker"
"""How torch names the processes of a DataLoader."""
PRINTING = "/torch/_tensor_str.py"

OPEN_SECONDS = 3.0
"""A collective that is open for so long without a change is waited for, wherever the main thread
is: in backward(), in wait(), or where a GPU's value is read."""
ELSEWHERE = re.compile(
    r"/(socket|ssl|selectors|socketserver|ftplib|imaplib|smtplib)\.py$|/(http|urllib|urllib3|asyncio"
    r"|requests|httpx|httpcore|anyio|aiohttp|grpc|botocore|s3transfer|boto3|paramiko|websockets"
    r"|google/(?:api_core|cloud|resumable_media)|azure|openai|redis|psycopg2?|pymongo)/"
)
"""Files of libraries in whose frames a thread waits for what is done elsewhere."""
CHILD = re.compile(r"/(subprocess|multiprocessing/popen_\w+)\.py$")
BULK = 32 << 10
"""Bytes in CPU_SECONDS that are work whoever moves them, and not what a background thread tells a
server now and then."""
PATIENT = 3
"""How many times as long is waited for an answer from elsewhere, which nobody here can hasten."""
LEAVING = frozenset({("threading.py", "_shutdown"), ("util.py", "_exit_function")})
"""File and function of Python's in which a program that is over waits for its threads, and for what
it has started with multiprocessing."""
SYNCHRONISING = frozenset({"item", "tolist", "cpu", "numpy"})
"""Methods of a tensor that wait until its GPU has got as far, and copy it."""
COPYING = frozenset({"to", "cuda"})
"""Those that copy it there, and wait for what the GPU had to do before."""
CONVERTING = {
    "float": "float() of a tensor",
    "int": "int() of a tensor",
    "bool": "bool() of a tensor",
    "test": "a test of a tensor (if, while, and, not)",
}
"""What does the same without a method of the user's."""
IDLE = 0.05
"""Part of a CPU below which a process does nothing: an answer to a look takes a thousandth."""
UNIX_WAIT = "unix_"
"""How the kernel's functions begin in which a thread waits at a Unix socket. It counts no bytes of
those, so that what comes shows by the thread's waking up."""
PIPE_WAITS = ("pipe_", "anon_pipe_")
"""The same at a pipe, of a child's output or of a file system's, which is neither net nor disk."""
CPU_SECONDS = 2.0
"""Over how long its use of the CPU is averaged."""
ALL_IN_INIT = 3
"""How many times as long is waited where all ranks are still on their way into the group."""
SAMPLES = 120
"""Memory samples kept; with more, every second one is dropped and they are taken half as often."""
WARM = 3
"""Steps after which the pace is looked at: before, libraries load and kernels compile."""
KEPT = 512
THREADS, NAME = 16, 60
"""Threads of an answer that are read, and letters of a name."""
KEYS, KEY = 4, 120
"""Keys of a store that are kept, and letters of each."""
FOREVER, MOMENT = 1e9, 0.1
"""Seconds of a sleep that are no sane time; and by which two looks at one sleep may differ."""
PAUSE, LONGER = 0.5, 2.5
"""A sleep is long from this part of the patience on; and by how much longer than the one before it
may be: attempts are often made at twice the distance each time."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that a process and those below it have moved since they were looked at first: over
    `net`, and through `files`; `below` and `files_below`: what its children have of these. `peer`:
    the other end of the busiest connection since the last look."""

    net: int = 0
    files: int = 0
    below: int = 0
    peer: str = ""
    files_below: int = 0


NOTHING = Moved()


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One look at one process, `at` seconds on a clock that only counts forward. `pulse` is what
    its inside told, None when that gave no answer; cpu and rss are those of the process with its
    children, in seconds and bytes, shm what all of the machine have in /dev/shm."""

    at: float
    cpu: float
    rss: int
    state: str = ""
    wchan: str = ""
    wakes: int = 0
    """Of one that waits at a Unix socket or a pipe, as procfs.wakes() counts them."""
    children: tuple[ChildProcess, ...] = ()
    pulse: Mapping[str, Any] | None = None
    shm: int = 0
    below: float = 0.0
    """CPU of its children alone, in seconds."""
    moved: Moved = NOTHING
    pinned: frozenset[int] = frozenset()
    """The CPUs that it may run on, where they are fewer than those that preflight may."""
    on_cpu: tuple[float, float] = (0.0, 0.0)
    """Seconds that its main thread has been on a CPU, and that it was ready and had none."""


def count_of(told: Mapping[str, Any], name: str) -> int:
    """A count in an answer; 0 for what is not a sane one."""
    value = told.get(name)
    return value if type(value) is int and 0 <= value < 1 << 53 else 0


@dataclass(slots=True)
class ThreadUse:
    """Of a thread: the seconds of CPU that it had used at the first look at it and at the latest,
    and the user's lines at which it was."""

    name: str
    before: float
    used: float = 0.0
    lines: Counter[Frame] = field(default_factory=Counter)


@dataclass(slots=True)
class History:
    """Of one process. `changed`: when it last did a step, a batch or a collective; `moved`: when it
    last did anything that shows."""

    pid: int
    born: float
    inside: bool = True
    served: bool = False
    """Of a process that we are not inside of: torch's own server in it tells what it calls."""
    rank: int | None = None
    world: int = 0
    joined: bool = False
    meets: tuple[int, str] | None = None
    """Port or path where its call of init_process_group looks for the others; None: not known."""
    child: bool = False
    """Made by multiprocessing or by a fork: no launcher has given it a rank."""
    by_node: bool = False
    """Its rank is the one on its node, no launcher has given another: rank_and_world() of the
    responder."""
    at: str = "own"
    stack: tuple[Frame, ...] = ()
    away: tuple[tuple[Frame, ...], float] = ((), 0.0)
    """Where it was seen last that is no call for which it waits for other ranks, and when."""
    steps: int = 0
    batches: int = 0
    answers: int = 0
    """How often its main thread has got something over a connection."""
    loader: Loader | None = None
    groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    changed: float = 0.0
    moved: float = 0.0
    leaving: bool = False
    """Its program is over: it is in destroy_process_group, in what atexit calls, or waits for its
    threads."""
    failure: Uncaught | None = None
    """Calls.failure"""
    profiled: object = None
    """What it said last of a profiler that records it."""
    keys: tuple[str, ...] = ()
    """Those of the job's store for which it waits."""
    nap: tuple[float, float] = (0.0, 0.0)
    """When its main thread was first seen in its latest sleep, and when that ends by itself, or has
    ended. So is that of a DataLoader's worker for which it waits, and a wait for a key to which the
    program sets a limit."""
    rest: float = 0.0
    """Seconds of the one before."""
    stood: float = 0.0
    """When its main thread was last seen at another place of the user's code, or otherwise at it:
    what a library does there while it waits counts as nothing."""
    worked: float = 0.0
    """When it was last seen to work where no stack shows it: connections, files, children."""
    cpu: float = 0.0
    below: float = 0.0
    """Of that, its children's."""
    moves: Moved = NOTHING
    """Bytes in the last seconds."""
    pinned: frozenset[int] = frozenset()
    state: str = ""
    wchan: str = ""
    children: tuple[ChildProcess, ...] = ()
    lost: int = 0
    unrecorded: str = ""
    """Calls.unrecorded"""
    gpu_limit: int = 0
    device: Mapping[str, Any] = field(default_factory=dict)
    """How its torch knows the GPU that it uses; `reserved`: bytes taken there at most."""
    reserved: int = 0
    raised: bool = False
    answered: float = 0.0
    samples: list[tuple[float, int, int, int]] = field(default_factory=list)
    shm: list[tuple[float, int, int]] = field(default_factory=list)
    looks: int = 0
    pending: int = 0
    """Looks at which a collective was open."""
    began: float = 0.0
    last: float = 0.0
    """The first and the last look at its pace."""
    places: Counter[str] = field(default_factory=Counter)
    own: Counter[Frame] = field(default_factory=Counter)
    between: Counter[Frame] = field(default_factory=Counter)
    """The same of looks between the optimizer and the next forward."""
    after: Counter[Frame] = field(default_factory=Counter)
    """And of those between a backward and the optimizer."""
    loading: Counter[Frame] = field(default_factory=Counter)
    """And of those in what a DataLoader without workers calls of the user's."""
    synced: Counter[tuple[str, Frame]] = field(default_factory=Counter)
    copied: int = 0
    """Looks at which it waited for its GPU: by which call, at which line of the user's."""
    threads: dict[int, ThreadUse] = field(default_factory=dict)
    """Those beside the main one, by their number."""
    cpu_looks: tuple[tuple[float, float, float], ...] = ()
    """The first and the latest sample since its pace is looked at: when, and ProcessSample.on_cpu
    of it."""
    first: tuple[int, int] = (0, 0)
    """What was done, and collectives, when the pace began to be looked at."""
    gpu_wait: str = ""
    """Calls.gpu_wait"""
    _burnt: list[ProcessSample] = field(default_factory=list)
    _every: float = 1.0

    def __post_init__(self) -> None:
        self.changed = self.moved = self.stood = self.worked = self.born

    def add_sample(self, look: ProcessSample) -> None:
        """Take one look into account."""
        self._use_cpu(look)
        self.state, self.wchan, self.pinned = look.state, look.wchan, look.pinned
        gone = {c.pid for c in self.children} - {c.pid for c in look.children}
        dead = {c.pid for c in look.children if c.state in ("Z", "X")}
        before = {c.pid for c in self.children if c.state in ("Z", "X")}
        self.lost = self.lost + len(dead - before) if self.at == "loader" else len(dead)
        self.children = look.children
        if gone:
            self.moved = look.at
        if look.pulse is not None and "error" not in look.pulse:
            self.add_answer(look.at, look.pulse)
            if self.looks:
                self.cpu_looks = (*self.cpu_looks[:1], (look.at, *look.on_cpu))
        elif look.at - self.answered > OPEN_SECONDS:
            self.at = "unknown"
        gpu = look.pulse.get("gpu") if look.pulse is not None else None
        used, self.gpu_limit = _two_counts(gpu) if gpu else (0, self.gpu_limit)
        if isinstance(device := (look.pulse or {}).get("device"), dict):
            self.device = device
            self.reserved = max(self.reserved, count_of(device, "reserved"))
        if not self.samples or look.at - self.samples[-1][0] >= self._every:
            self.samples.append((round(look.at, 2), self.done, look.rss, used))
            self.shm.append((round(look.at, 2), self.done, look.shm))
            if len(self.samples) > SAMPLES:
                self.samples, self.shm = self.samples[::2], self.shm[::2]
                self._every *= 2

    def _use_cpu(self, look: ProcessSample) -> None:
        self._burnt.append(look)
        while len(self._burnt) > 2 and look.at - self._burnt[1].at >= CPU_SECONDS:
            self._burnt.pop(0)
        first, last = self._burnt[0], self._burnt[-1]
        seconds = max(last.at - first.at, 1e-9)
        self.cpu = max(0.0, last.cpu - first.cpu) / seconds
        self.below = max(0.0, last.below - first.below) / seconds
        one, two = first.moved, last.moved
        self.moves = Moved(
            two.net - one.net,
            two.files - one.files,
            two.below - one.below,
            two.peer or one.peer,
            two.files_below - one.files_below,
        )
        # R: it would go on if it were given a CPU. To a rank that waits for the workers of a
        # DataLoader its own threads (a reporter, a tracker) bring no batch
        busy = self.below if self.awaits_workers else self.cpu
        if busy >= IDLE or look.state == "R":
            self.moved = look.at
        before = self._burnt[-2] if len(self._burnt) > 1 else look
        reads = self.asks or (self.at == "own" and look.wchan.startswith(PIPE_WAITS))
        if self._works_elsewhere() or (reads and 0 < before.wakes < look.wakes):
            self.moved = self.worked = look.at

    def _works_elsewhere(self) -> bool:
        """Whether its connections, files or children show that it goes on. A few bytes count only
        where its main thread waits for them: others may be a logger's or a tracker's. Where it
        waits for a DataLoader's workers, only what these move counts."""
        few = self.moves.net if self.asks else 0
        few = self.moves.below if self.awaits_child else few
        children = self.below >= IDLE and self.at == "own"
        moves = self.moves
        many = max(moves.net, moves.files)
        if self.awaits_workers:
            many = max(moves.below, moves.files_below)
        return children or few > 0 or many >= BULK

    @property
    def asks(self) -> bool:
        """Whether its main thread waits for an answer from elsewhere."""
        away = any(ELSEWHERE.search(f.file) for f in _library(self.stack))
        return self.at == "own" and away and not self.awaits_child

    @property
    def awaits_child(self) -> bool:
        """Whether its main thread waits for a process that it has started."""
        waits = self.wchan.startswith(("do_wait", "kernel_wait"))
        return self.at == "own" and (
            waits or any(CHILD.search(f.file) for f in _library(self.stack))
        )

    @property
    def awaits_workers(self) -> bool:
        """Whether its main thread waits for the worker processes of a DataLoader."""
        if self.loader is not None:
            return self.at == "loader" and self.loader.workers > 0
        return self.at == "loader" and any(c.name == LOADER_WORKER for c in self.children)

    def add_answer(self, at: float, pulse: Mapping[str, Any], *, last: bool = False) -> None:
        """Take an answer of its inside; `last`: what it left when it ended, some time before."""
        self.answered = at
        rank = pulse.get("rank")
        self.rank = rank if type(rank) is int and 0 <= rank < 1 << 24 else self.rank
        self.world = count_of(pulse, "world") or self.world
        self.joined = self.joined or pulse.get("joined") is True
        self.meets = _meets(pulse.get("meets"))
        self.by_node = pulse.get("by_node") is True
        self.raised = self.raised or pulse.get("raised") is True
        self.failure = _failure(pulse.get("failure"))
        self.profiled = pulse.get("profiled", self.profiled)
        self.unrecorded = one_line(pulse.get("unrecorded", ""))
        groups = _groups(pulse.get("groups"))
        done = (count_of(pulse, "steps"), count_of(pulse, "batches"), groups)
        if done != (self.steps, self.batches, self.groups):
            self.changed = self.moved = at
            self.steps, self.batches, self.groups = done
        if (answers := count_of(pulse, "answers")) != self.answers:
            self.moved = self.worked = at
            self.answers = answers
        stack = frames_from_json(pulse.get("stack"), FRAMES)
        if stack != self.stack:
            self.moved = at
            if activity(stack) != activity(self.stack) or _own_frames(stack) != _own_frames(
                self.stack
            ):
                self.stood = at
            self.stack = stack
        self.loader = _loader(pulse.get("loader")) or self.loader
        self.leaving = pulse.get("leaving") is True
        self._note_waits(at, mapping_or_empty(pulse.get("store")), pulse.get("sleeps"))
        self.at = self._place(at)
        if self.at in ("own", "loader"):
            self.away = (self.stack, at)
        calls = str(pulse.get("calls", ""))
        self.gpu_wait = waits_for_gpu(stack, calls if self.gpu_limit else "")
        if self.done >= WARM and not last:
            self._keep_pace(at, pulse, calls)
            self._keep_threads(pulse.get("threads"))

    def _note_waits(self, at: float, store: Mapping[str, Any], sleeps: object) -> None:
        """For which keys it waits, and when it wakes by itself."""
        keys = store.get("keys")
        keys = tuple(one_line(k, KEY) for k in keys[:KEYS]) if isinstance(keys, list) else ()
        if keys != self.keys:
            self.keys, self.changed, self.moved = keys, at, at
        told = store.get("ends") if keys else sleeps
        began, ends = self.nap
        if not isinstance(told, (int, float)) or not at < told < at + FOREVER:
            self.nap = (began, min(ends, at))
        elif abs(told - ends) > MOMENT:
            self.rest, self.nap = min(ends, at) - began, (at, float(told))

    def _place(self, at: float) -> str:
        waits = any(enqueued > completed for enqueued, completed in self.groups.values())
        found = activity(self.stack)
        if found == "own" and self.keys:
            return "store"
        # Gloo's count of what is done may lag behind, so it has to make no progress as well
        if found == "own" and waits and at - self.since >= OPEN_SECONDS:
            return "collective"
        return found

    @property
    def since(self) -> float:
        """When it last did anything. What a thread burns that waits for a GPU, in a collective or
        for a value, is nothing."""
        if self.gpu_limit:
            return max(self.changed, self.stood, self.worked)
        return self.moved

    def _keep_pace(self, at: float, pulse: Mapping[str, Any], calls: str) -> None:
        if not self.looks:
            self.first = (self.done, self.collectives)
            self.began = at
        self.looks += 1
        self.places[self.at] += 1
        self.pending += any(e > c for e, c in self.groups.values())
        self.last = at
        mine = next((f for f in self.stack if f.own), None)
        if self.at == "own" and mine is not None and len(self.own) < KEPT:
            self.own[mine] += 1
            self.between[mine] += pulse.get("between") is True
            self.after[mine] += pulse.get("after") is True
            if (made := _called_by_loader(self.stack)) is not None:
                self.loading[made] += 1
        how = synchronises(self.stack, calls)
        if how and mine is not None and len(self.synced) < KEPT:
            self.synced[how, mine] += 1
        self.copied += calls in COPYING

    def _keep_threads(self, told: object) -> None:
        for entry in told[:THREADS] if isinstance(told, list) else ():
            match entry:
                case [int(number), str(name), int() | float() as used, place] if (
                    0 <= used < FOREVER
                ):
                    known = self.threads.get(number)
                    if known is None and len(self.threads) < KEPT:
                        known = self.threads[number] = ThreadUse(one_line(name, NAME), float(used))
                    if known is not None:
                        known.used = max(known.used, float(used) - known.before)
                        frame = frame_from_json(place)
                        if frame is not None and len(known.lines) < KEPT:
                            known.lines[frame] += 1

    @property
    def watched(self) -> str:
        """Life.watched"""
        if self.inside:
            return "inside"
        if self.served:
            return "server"
        return "py-spy" if self.stack else "outside"

    @property
    def done(self) -> int:
        """Steps of an optimizer, or batches where there is none."""
        return self.steps or self.batches

    @property
    def step_seconds(self) -> float:
        """Of a step, on average since its pace is looked at; 0 while that is not known."""
        steps = self.done - self.first[0]
        return (self.last - self.began) / steps if self.looks and steps > 0 else 0.0

    @property
    def collectives(self) -> int:
        """Calls so far, in all groups."""
        return sum(enqueued for enqueued, _ in self.groups.values())

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks or for data, or has nothing to do but to end."""
        return self.leaving or self.at in ("collective", "init", "loader", "store")

    def idle_since(self, patience: float, until: float) -> float:
        """Since when it has done nothing. A sleep that is long for so much patience and ends by
        itself before `until`, or is about as long as the one before, counts as an attempt's pause:
        what comes after it is not known yet. Short ones are those of a poll, at its exit a rank
        attempts nothing any more, and what torch attempts on the way into the group, at ever longer
        distances for 30 minutes, is to connect to one that would have to do something first."""
        began, ends = self.nap
        length = ends - began
        again = not self.leaving and length <= LONGER * self.rest
        paused = length >= PAUSE * patience and (ends < until or again) and self.at != "init"
        return max(self.since, ends) if paused else self.since

    @property
    def closing(self) -> bool:
        """Life.closing"""
        return self.leaving or any(f.function == CLOSING for f in self.stack)


def activity(stack: Iterable[Frame]) -> str:
    """Where a thread with this stack is: see Calls.at."""
    inner = _library(stack)
    if not inner or any(f.function == CLOSING for f in inner):
        return "own"
    if any(f.file.endswith(MEETING) or f.function in INIT for f in inner):
        return "init"
    if inner[0].file.endswith(COLLECTIVES):
        return "collective"
    return "loader" if any(LOADING in f.file for f in inner) else "own"


def leaves(stack: Iterable[Frame]) -> bool:
    """Whether a program is over, and waits for its threads or child processes to end."""
    return any((f.file.rpartition("/")[2], f.function) in LEAVING for f in stack)


def synchronises(stack: Iterable[Frame], calls: str) -> str:
    """By which call a thread waits for a GPU, as the user writes it; empty: it does not. `calls`:
    the method that the innermost frame calls, or how it uses a tensor."""
    inner = _library(stack)
    if any(f.file.endswith(PRINTING) for f in inner):
        return "print of a tensor"
    if any(f.function == "synchronize" and "/torch/cuda/" in f.file for f in inner):
        return "synchronize()"
    return f".{calls}()" if calls in SYNCHRONISING else CONVERTING.get(calls, "")


def waits_for_gpu(stack: Iterable[Frame], calls: str) -> str:
    """The same, with copies to it: these wait for all that it still has to do."""
    return f".{calls}()" if calls in COPYING else synchronises(stack, calls)


def _library(stack: Iterable[Frame]) -> list[Frame]:
    """The frames below the innermost one of the user's code."""
    return list(takewhile(lambda frame: not frame.own, stack))


def _called_by_loader(stack: Iterable[Frame]) -> Frame | None:
    """The line of the user's in what a DataLoader has called: a dataset or a collate_fn."""
    called = None
    for frame in stack:
        if LOADING in frame.file:
            return called
        called = frame if frame.own else called
    return None


def _own_frames(stack: Iterable[Frame]) -> tuple[Frame, ...]:
    return tuple(frame for frame in stack if frame.own)


def all_stuck(
    ranks: Iterable[History],
    others: Iterable[History],
    now: float,
    patience: float,
    until: float = 0.0,
) -> bool:
    """Whether nothing goes on any more: some rank has waited for `patience` seconds, and nobody
    else has done anything meanwhile. `others` are processes that are to become ranks; `until`: when
    the watch ends."""
    living, coming = list(ranks), list(others)
    if not coming and all(h.world <= len(living) for h in living):
        patience = patience_of(living, patience)
    return any_waited(living, now, patience) and all_idle([*living, *coming], now, patience, until)


def patience_of(ranks: Iterable[History], patience: float) -> float:
    """Where all are still on their way into the group nobody is late, unless they look for each
    other at several places; and an answer from elsewhere may take its time."""
    living = list(ranks)
    if all(h.at == "init" for h in living):
        return patience if _never_meet(living) else patience * ALL_IN_INIT
    return patience * PATIENT if any(h.asks for h in living) else patience


def _never_meet(ranks: Sequence[History]) -> bool:
    """Whether they look for each other at several ports or paths. Two of one number are of two
    jobs, each of which may have a place of its own."""
    one_job = len({h.rank for h in ranks}) == len(ranks)
    return one_job and len({h.meets for h in ranks if h.meets is not None}) > 1


def any_waited(ranks: Iterable[History], now: float, patience: float) -> bool:
    """Whether one of them has waited for so long."""
    return any(h.waits and now - max(h.changed, h.stood) >= patience for h in ranks)


def all_idle(processes: Iterable[History], now: float, patience: float, until: float = 0.0) -> bool:
    """Whether each of them has done nothing for so long."""
    return all(now - h.idle_since(patience, until) >= patience for h in processes)


def _groups(told: object) -> dict[str, tuple[int, int]]:
    if not isinstance(told, dict):
        return {}
    return {one_line(name, 40): _two_counts(counts) for name, counts in list(told.items())[:64]}


def _meets(told: object) -> tuple[int, str] | None:
    match told:
        case [int(port), str(path)] if port > 0 or path:
            return int(port), one_line(path)
    return None


def _two_counts(told: object) -> tuple[int, int]:
    match told:
        case [int(one), int(two)]:
            return int(max(0, one)), int(max(0, two))  # True is an int, too
    return 0, 0


def _failure(told: object) -> Uncaught | None:
    match told:
        case [str(text), place]:
            return Uncaught(redact("", one_line(text), FAILURE), frame_from_json(place))
    return None


def _loader(told: object) -> Loader | None:
    if not isinstance(told, dict):
        return None
    length = told.get("length")
    return Loader(
        length=length if type(length) is int and 0 <= length < 1 << 53 else None,
        given=count_of(told, "given"),
        exhausted=told.get("exhausted") is True,
        workers=count_of(told, "workers"),
        sampler=one_line(told.get("sampler", ""), 60),
        passes=count_of(told, "passes"),
        frame=frame_from_json(told.get("frame")),
    )
