"""Whether something grows for good, and when it will be used up. Pure.

Memory of a healthy job grows, too: while it warms up, once at an evaluation, in teeth that a
collection of garbage cuts. What is called growth here went on until the end, at the same pace, and
never gave much of it back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, groupby, pairwise
from statistics import median

from preflight.frozen import dataclass

Point = tuple[float, int, int]
"""Seconds, steps done by then, bytes."""

SECONDS, STEPS, POINTS = 10.0, 15, 8
"""What must be seen after the warm-up for any answer."""

WARM_UP = 20.0
"""Seconds after the first step in which caches, allocators and loaders fill; of a watch that is no
longer than twice that, its first half. And always the first third of the steps."""

MOST = 24
"""Points kept: the lowest of each stretch, so that what comes and goes within a step is no noise.
"""

RISING = 0.7
"""Part of the intervals that go up. Of pure noise half of them do."""

CERTAIN = 3.3
"""Standard deviations of Mann and Kendall's statistic of a trend: with the fewest points that
there may be none may be out of order, which noise does once in forty thousand times."""

GIVEN_BACK = 1 / 3
"""Part of the growth that may be lost again in between; a tooth loses nearly all of it."""

STILL = 0.8
"""Pace of the second half against the first. What slows down is a cache that fills or a heap that
finds its size: growth like a square root has 0.77 here, one like a logarithm 0.58."""

LARGEST = 1 << 62

RISES, RISEN, RISEN_PART, EVENLY = 6, 0.8, 0.5, 0.5
"""Of memory that ran out: counts of steps at which it was seen after the first ones, part of them
with more than the one before, part of the memory that came since, and the pace of the second half
against the first."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Growth that goes on: bytes a step and a second at its present pace, and what there was."""

    per_step: float
    per_second: float
    grown: float
    steps: int


@dataclass(frozen=True, slots=True)
class Rise:
    """Memory after some steps, and after many more; in bytes."""

    first: int
    least: int
    last: int
    most: int

    @property
    def per_step(self) -> float:
        return (self.most - self.least) / (self.last - self.first)


def after_warm_up(points: Sequence[Point]) -> tuple[Point, ...]:
    """The lowest points of each stretch after the warm-up; none where too little was seen. A point
    of 0 bytes is a look that got no answer."""
    sane = [p for p in points if math.isfinite(p[0]) and p[1] >= 0 and 0 < p[2] <= LARGEST]
    sane.sort(key=lambda p: p[0])
    # a job that an agent has started again counts from one again
    again = [i for i, (a, b) in enumerate(pairwise(sane), 1) if b[1] < a[1]]
    run = [p for p in sane[again[-1] if again else 0 :] if p[1] > 0]
    if not run:
        return ()
    (began, first, _), (ended, last, _) = run[0], run[-1]
    warm = began + min(WARM_UP, (ended - began) / 2)
    kept = [p for p in run if p[0] >= warm and 3 * (p[1] - first) >= last - first]
    lows = [_lowest(list(same)) for _, same in groupby(kept, key=lambda p: p[1])]
    each = math.ceil(len(lows) / MOST) or 1
    lows = [_lowest(lows[i : i + each]) for i in range(0, len(lows), each)]
    if len(lows) < POINTS:
        return ()
    long = lows[-1][0] - lows[0][0] >= SECONDS and lows[-1][1] - lows[0][1] >= STEPS
    return tuple(lows) if long else ()


def rise(points: Sequence[tuple[int, int]]) -> Rise | None:
    """How memory grew that ran out in the end, by steps done and bytes; None where it was nearly as
    much from the start, or came at once. It takes less than a growth that is foretold."""
    lows: dict[int, int] = {}
    for steps, used in points:
        if steps > 0 and 0 < used <= LARGEST:
            lows[steps] = min(used, lows.get(steps, used))
    seen = sorted(lows.items())[1:]
    if len(seen) < RISES:
        return None
    (first, least), (last, most) = seen[0], seen[-1]
    rising = sum(b > a for (_, a), (_, b) in pairwise(seen)) / (len(seen) - 1)
    middle, half = seen[len(seen) // 2]
    before, after = (half - least) / (middle - first), (most - half) / (last - middle)
    if rising < RISEN or most - least < RISEN_PART * most or after < EVENLY * before:
        return None
    return Rise(first, least, last, most)


def _lowest(points: Sequence[Point]) -> Point:
    return min(points, key=lambda p: p[2])


def growth(points: Sequence[Point]) -> Trend | None:
    """The growth of what `settled` has left; None where it is none, or may be none."""
    if len(points) < POINTS:
        return None
    heights = [p[2] for p in points]
    slope = _slope(points)
    steps = points[-1][1] - points[0][1]
    grown = slope * steps
    half = len(points) // 2
    before, after = _slope(points[: half + 1]), _slope(points[half:])
    rising = sum(b > a for a, b in pairwise(heights)) / (len(heights) - 1)
    goes_on = min(slope, after) > 0 and after >= STILL * before
    steady = rising >= RISING and _certainty(heights) >= CERTAIN
    if not (goes_on and steady and _given_back(heights) <= GIVEN_BACK * grown):
        return None
    pace = min(slope, after)
    return Trend(pace, pace * steps / (points[-1][0] - points[0][0]), grown, steps)


def _slope(points: Sequence[Point]) -> float:
    """Bytes a step by Theil and Sen: the median over all pairs, which one jump does not move."""
    return median((b[2] - a[2]) / (b[1] - a[1]) for a, b in combinations(points, 2))


def _certainty(heights: Sequence[int]) -> float:
    """How far the pairs that go up outnumber those that go down: Mann and Kendall's Z."""
    count = len(heights)
    balance = sum((b > a) - (b < a) for a, b in combinations(heights, 2))
    return (balance - 1) / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def _given_back(heights: Sequence[int]) -> int:
    """The deepest fall from any height before it."""
    highest, deepest = heights[0], 0
    for height in heights:
        highest = max(highest, height)
        deepest = max(deepest, highest - height)
    return deepest
