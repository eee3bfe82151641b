"""Labels that count in the loss of each rank: where a rank has many and another one few, and each
divides by its own number, a label of the latter weighs as much more in the averaged gradients.
Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from preflight.frozen import dataclass

LOOKS, MOST = 10, 0.8
"""Steps that are looked at on all ranks, and the part of them in which a rank has few: by chance
each rank has few now and then."""
TIMES = 4.0
"""How many times as many the others have then."""
FEW = 8
"""Numbers of a call that may be such counts."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Of the batches of one step of a rank: how many labels are not ignored (-100), of how many."""

    step: int
    counted: int
    of: int


@dataclass(frozen=True, slots=True)
class UnevenLabels:
    """The ranks with other numbers of them than most in nearly all steps (of two ranks: the one
    with fewer): labels that count there, and elsewhere, per step."""

    odd: tuple[int, ...]
    theirs: float
    usual: float
    steps: int


def uneven_labels(found: Mapping[int, Sequence[Labels]]) -> UnevenLabels | None:
    """Where some ranks have a fraction of what the others have in nearly all steps, or a multiple
    of it."""
    known = {rank: {one.step: one.counted for one in looks} for rank, looks in found.items()}
    steps = sorted(set.intersection(*map(set, known.values()))) if len(known) > 1 else []
    steps = [step for step in steps if any(one[step] for one in known.values())]
    if len(steps) < LOOKS:
        return None
    of_two = len(known) == 2
    usual = {
        step: (max if of_two else median)([one[step] for one in known.values()]) for step in steps
    }
    few = [r for r, one in known.items() if _often(TIMES * one[s] <= usual[s] for s in steps)]
    many = [r for r, one in known.items() if _often(one[s] >= TIMES * usual[s] for s in steps)]
    odd = few or ([] if of_two else many)
    rest = [rank for rank in known if rank not in odd]
    if not odd or not rest:
        return None
    mean = {rank: sum(one[step] for step in steps) / len(steps) for rank, one in known.items()}
    theirs, others = ([mean[rank] for rank in ranks] for ranks in (odd, rest))
    return UnevenLabels(tuple(sorted(odd)), median(theirs), median(others), len(steps))


SIZES = re.compile(r"\[([\d, ]*)\]")


def is_of_few(shape: str) -> bool:
    """Whether a call with such tensors ("[] Long", "[2] Float; [1] Float") exchanges a few numbers
    at most."""
    found = SIZES.findall(shape)
    counts = [math.prod(int(size) for size in one.split(",") if size.strip()) for one in found]
    return 0 < len(found) <= FEW and sum(counts) <= FEW


def _often(cases: Iterable[bool]) -> bool:
    known = list(cases)
    return sum(known) >= MOST * len(known)
