"""Weights that two layers had in common, and that are two weights by now. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.domains.job.frame import Frame
from preflight.frozen import dataclass

ENOUGH = 16
"""Steps for which both are trained before they are called untied."""


@dataclass(frozen=True, slots=True)
class Untied:
    """Two names of a model that had one parameter and have one each. frame: the user's line that
    tied them; since, until: the first and the latest look, in steps, at which both had gradients
    and were in an optimizer."""

    name: str
    other: str
    shape: str
    frame: Frame | None
    since: int
    until: int


def trained_apart(found: Sequence[Untied]) -> tuple[Untied, ...]:
    return tuple(one for one in found if one.until - one.since >= ENOUGH)
