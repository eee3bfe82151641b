"""What a rank pays for in each step without need: a profiler that is left running, parameters of a
sharded model gathered again and again, gradients summed in spite of no_sync. Pure."""

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
class Needless:
    """Of one rank. whole: numbers that the parameters of its sharded model have together."""

    profiled: Profiled = Profiled()
    gathered: tuple[Gathered, ...] = ()
    whole: int = 0
    no_sync: NoSync = NoSync()


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


def needless_work(one: Needless) -> bool:
    found = left_running(one.profiled) or not_skipped(one.no_sync)
    return found or gathered_each_step(one.gathered, one.whole) is not None
