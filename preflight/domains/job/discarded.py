"""Gradients of batches that are reset before an optimizer has used them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.domains.job.frame import Frame
from preflight.frozen import dataclass

ENOUGH, MOST = 8, 0.9
"""Steps before which gradients were lost, and the part of all steps that these are: a batch that is
left out now and then, or a step that a GradScaler skips, is none of it."""


@dataclass(frozen=True, slots=True)
class Discarded:
    """Of one optimizer, over the steps whose batches are of one pass over a DataLoader. All of its
    first steps are looked at, and one in seven after them.

    frame    the user's line of such a reset
    steps    how many there were; `wasted`: before which gradients of a batch were reset that no
             step had used, and another batch followed
    resets   those that lost gradients; batches: those of the `wasted` steps
    """

    kind: str
    frame: Frame | None
    steps: int
    wasted: int
    resets: int
    batches: int


def thrown_away(found: Sequence[Discarded]) -> Discarded | None:
    """The first optimizer for which that is so in nearly all steps."""
    usual = (one for one in found if one.wasted >= max(ENOUGH, MOST * one.steps))
    return next(usual, None)
