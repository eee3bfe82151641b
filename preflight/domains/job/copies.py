"""Copies that the ranks keep of a model in DDP, such as averaged weights, and where they differ
though the models do not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from preflight.domains.job.frame import Frame
from preflight.domains.job.replica import Drift, Replica, Sampled, differs_at
from preflight.frozen import dataclass

LOAD, FORWARD = "load", "forward"
"""How a copy is used: load_state_dict into the model, and a forward of an AveragedModel."""
CHANGES = 3
"""Looks between which a copy changes before it is called updated."""


@dataclass(frozen=True, slots=True)
class CopyUse:
    """The `number`-th use in this way (from 0), at the user's line `frame`, with the copy's numbers
    then; `looked.step`: steps made by then."""

    how: str
    number: int
    frame: Frame | None
    looked: Sampled


@dataclass(frozen=True, slots=True)
class ModelCopy:
    """A copy of a model. frame: the user's line that made it; looks: at its numbers; replaced: some
    state dict was loaded into it, as into the best model so far."""

    frame: Frame | None = None
    names: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    looks: tuple[Sampled, ...] = ()
    uses: tuple[CopyUse, ...] = ()
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class CopiesApart:
    """Copies of all ranks that differ; use: that in which they did, None: in none, but each rank
    updates its own; `copies`: by rank."""

    drift: Drift
    use: CopyUse | None
    copies: Mapping[int, ModelCopy]
    still: tuple[int, ...] = ()
    """Ranks whose copy never changed."""


def copies_apart(
    found: Mapping[int, Sequence[ModelCopy]], unequal: int | None
) -> CopiesApart | None:
    """The first copy that all ranks have, and that is used on all of them while it differs, or that
    all of them update apart. unequal: after how many steps the models differ, None: they do not;
    later the copies differ for that reason. What one rank keeps or uses alone is its own."""
    for copies in _of_all(found):
        still = tuple(rank for rank, one in copies.items() if not changes(one))
        for number, use in _common_uses(copies):
            if unequal is not None and unequal <= use.looked.step:
                continue
            looked = {
                r: replace(one, looks=(one.uses[number].looked,)) for r, one in copies.items()
            }
            if (drift := _drift(looked)) is not None:
                return CopiesApart(drift, use, copies, still)
        drift = _drift(copies)
        own = still or any(one.replaced for one in copies.values())
        if drift and unequal is None and not drift.again and not own:
            return CopiesApart(drift, None, copies)
    return None


def changes(one: ModelCopy) -> bool:
    """Whether it is updated: its numbers are others at most looks."""
    pairs = zip(one.looks, one.looks[1:], strict=False)
    return sum(a.sums != b.sums for a, b in pairs) >= CHANGES


def _of_all(found: Mapping[int, Sequence[ModelCopy]]) -> Iterator[dict[int, ModelCopy]]:
    """Those that all ranks have made at the same lines, and as many of them."""
    lines = {tuple((one.frame, one.names, one.shapes) for one in own) for own in found.values()}
    if len(found) > 1 and len(lines) == 1:
        for number in range(len(lines.pop())):
            yield {rank: own[number] for rank, own in found.items()}


def _common_uses(copies: Mapping[int, ModelCopy]) -> Iterator[tuple[int, CopyUse]]:
    """The uses, by their number in the list, that all ranks have made after as many steps."""
    for number, uses in enumerate(zip(*(one.uses for one in copies.values()), strict=False)):
        if len({(use.how, use.number, use.frame, use.looked.step) for use in uses}) == 1:
            yield number, uses[0]


def _drift(copies: Mapping[int, ModelCopy]) -> Drift | None:
    return differs_at(
        {
            rank: replace(Replica(), names=one.names, shapes=one.shapes, checks=one.looks)
            for rank, one in copies.items()
        }
    )
