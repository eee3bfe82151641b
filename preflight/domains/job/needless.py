"""What a rank pays for again and again without need: a profiler that is left running, parameters of
a sharded model gathered in each step, gradients summed in spite of no_sync, workers of a DataLoader
that are started for each epoch, code that torch.compile compiles again, garbage collections of many
objects, gradients that are nearly all zero and summed in full. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.domains.job.frame import Frame
from preflight.frozen import dataclass

PROFILED = 100
"""Steps that a profiler records before it is called left running: a trace shows some ten."""
EACH, ENOUGH = 0.9, 16
"""Part of the steps in which parameters are gathered before it is called every one, and how many
there must be."""
HALF = 0.5
"""Part of all parameters that is gathered at a time."""
BLOCKS, MOST = 8, 0.9
"""Blocks of no_sync without their forward, and the part of all blocks that these are."""


STARTS, STARTING = 4, 0.25
"""How often the workers of DataLoaders are started after the first time, and the part of the time
since then that goes into it."""
VERSIONS, COMPILING, MOMENT = 8, 0.2, 15.0
"""How often one function is compiled, the part of the time since the first compilation that goes
into it, and the seconds that this must be: everything is compiled at the start."""


COLLECTIONS, COLLECTION, COLLECTING = 3, 0.05, 0.1
"""Garbage collections, seconds of the longest, and part of the time in them."""

USED, WASTED = 0.1, 0.5
"""Part of a table's rows that has a gradient, and part of all gradients' bytes that are its other
rows. A table of words of a language model is a third of it at most, or has a gradient in each row
where it is tied to the output."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """The profiler that ran longest: since which step, for how many, and the user's line that has
    started it."""

    since: int = 0
    steps: int = 0
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """A line that gathers parameters of a sharded model: the first and the latest step after which
    it did, after how many, and how many numbers in all; 0 where it always takes all of them."""

    frame: Frame
    first: int
    last: int
    steps: int
    numbers: int = 0


@dataclass(frozen=True, slots=True)
class NoSync:
    """Blocks of no_sync: `late` those that a backward is in and its forward is not, `right` those
    with a forward; the user's line of the first block."""

    late: int = 0
    right: int = 0
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class WorkerStarts:
    """Workers of DataLoaders that were started after the first time: how often; seconds until their
    first batches were there; seconds from the very first such batch to the latest; the line."""

    times: int = 0
    seconds: float = 0.0
    within: float = 0.0
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """The function that torch.compile has compiled most often: how often, seconds for it, seconds
    since the first compilation of all, why the latest time; where it begins."""

    times: int = 0
    seconds: float = 0.0
    within: float = 0.0
    why: str = ""
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """Python's garbage collections that took 10 ms of a CPU and more, after the first step: how
    often, CPU seconds of all of them, of the longest, seconds since the first; the user's line at
    which most of that was, and CPU seconds there."""

    times: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    within: float = 0.0
    there: float = 0.0
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A large matrix of a model in DDP: rows and columns, bytes of its gradient, the part of its
    rows with one where that was most, and bytes of all gradients of the model."""

    name: str
    rows: int
    columns: int
    bytes: int
    used: float
    whole: int


@dataclass(frozen=True, slots=True)
class Needless:
    """Of one rank. whole: numbers that the parameters of its sharded model have together."""

    profiled: Profiled = Profiled()
    gathered: tuple[Gathered, ...] = ()
    whole: int = 0
    no_sync: NoSync = NoSync()
    starts: WorkerStarts = WorkerStarts()
    compiled: Compiled = Compiled()
    collected: Collected = Collected()
    tables: tuple[Table, ...] = ()


def left_running(one: Profiled) -> bool:
    return one.steps >= PROFILED


def gathered_each_step(found: Sequence[Gathered], whole: int) -> Gathered | None:
    """The first line that gathers half of the parameters or more in nearly every step."""
    for one in found:
        span = one.last - one.first + 1
        large = not one.numbers or (whole and one.numbers >= HALF * whole * one.steps)
        if one.steps >= max(ENOUGH, EACH * span) and large:
            return one
    return None


def not_skipped(one: NoSync) -> bool:
    """Whether its blocks keep no gradients from being summed."""
    return one.late >= max(BLOCKS, MOST * (one.late + one.right))


def started_again(one: WorkerStarts) -> bool:
    """Whether starting workers takes a good part of the time."""
    return one.times >= STARTS and one.seconds >= STARTING * one.within > 0


def compiled_again(one: Compiled) -> bool:
    """Whether compiling the same function takes a good part of the time."""
    return one.times >= VERSIONS and one.seconds >= COMPILING * max(MOMENT, one.within)


def collects_garbage(one: Collected) -> bool:
    """Whether garbage collections take a good part of the time."""
    long = one.times >= COLLECTIONS and one.longest >= COLLECTION
    return long and one.within >= MOMENT and one.seconds >= COLLECTING * one.within


def mostly_zero(tables: Sequence[Table]) -> Table | None:
    """The table whose unused rows are most of what is summed."""
    worst = max(tables, key=lambda one: one.bytes * (1 - one.used), default=None)
    if worst is None or worst.used > USED:
        return None
    return worst if worst.bytes * (1 - worst.used) >= WASTED * worst.whole else None


def needless_work(one: Needless) -> bool:
    found = left_running(one.profiled) or not_skipped(one.no_sync)
    found = found or started_again(one.starts) or compiled_again(one.compiled)
    found = found or collects_garbage(one.collected)
    return found or gathered_each_step(one.gathered, one.whole) is not None
