"""What the optimizers of a rank hold beside the models that DDP has wrapped, how many hooks there
are, and what learning rate schedulers set. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from preflight.domains.job.frame import Frame
from preflight.domains.job.replica import Drift, Replica, Sampled, differs_at
from preflight.frozen import dataclass

ENOUGH = 16
"""Steps for which something is as it is before it is called so."""
LEAST, EACH = 4, 4
"""Steps between two looks that are compared, and for how many of them there is a new hook."""
LOOKS = 4
"""Pairs of looks, one after the other, between which hooks were added each time."""
BEYOND = 2
"""Counts of a scheduler after the last step of its optimizer: one may belong to that."""
ROUNDS = 2
"""Evaluations of which a scheduler got the number more than once each."""


@dataclass(frozen=True, slots=True)
class Held:
    """A parameter. frame: the user's line that makes what holds it; since, until: the first and the
    last look, in steps, at which it was like this, and at all between them."""

    name: str
    shape: str
    frame: Frame | None = None
    since: int = 0
    until: int = 0


@dataclass(frozen=True, slots=True)
class Loose:
    """Parameters with gradients that an optimizer steps, and that no DDP has. where: what the
    script calls the module that they are of; frame: the line that makes the optimizer; checks:
    looks at their numbers, as of a Replica."""

    names: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    where: str = ""
    frame: Frame | None = None
    checks: tuple[Sampled, ...] = ()


@dataclass(frozen=True, slots=True)
class Hooks:
    """looks: steps, and how many hooks there were; at the last one `owner` had most of one kind,
    of which the latest begins at `frame`."""

    looks: tuple[tuple[int, int], ...] = ()
    most: int = 0
    kind: str = ""
    owner: str = ""
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Scheduler:
    """One of an optimizer that makes no steps, while others, whose learning rates do not change,
    step its parameters. frame: the line that makes it; instead: that which makes another one;
    counts: its own after the last step of its optimizer; idle: steps of others since."""

    frame: Frame | None
    instead: Frame | None
    counts: int
    idle: int


@dataclass(frozen=True, slots=True)
class Plateau:
    """A ReduceLROnPlateau. frame: the line that makes it; rounds: how often it got numbers between
    two steps of its optimizer; least, most: how many of them at a time."""

    frame: Frame | None
    rounds: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Optimized:
    """Of one rank.

    hidden  parameters with gradients in lists and dicts of the model, which are none of its
            parameters, and which no optimizer has
    unheld  parameters of the model with gradients that no optimizer has
    ghosts  parameters without gradients, of an optimizer that has others of the model
    """

    steps: int = 0
    hidden: tuple[Held, ...] = ()
    unheld: tuple[Held, ...] = ()
    ghosts: tuple[Held, ...] = ()
    loose: Loose | None = None
    hooks: Hooks = Hooks()
    schedulers: tuple[Scheduler, ...] = ()
    plateaus: tuple[Plateau, ...] = ()


def lasting(found: Sequence[Held]) -> tuple[Held, ...]:
    return tuple(one for one in found if one.until - one.since >= ENOUGH)


def replaced(seen: Optimized) -> tuple[tuple[Held, Held], ...]:
    """Parameters that no optimizer has, each with one that an optimizer holds in its place: of the
    same shape but for one size, as of a head with other classes. All that the model lacks must be
    of use for this, or the two have nothing to do with each other."""
    ghosts, found = list(lasting(seen.ghosts)), []
    for one in lasting(seen.unheld):
        ghost = next((ghost for ghost in ghosts if alike(one.shape, ghost.shape)), None)
        if ghost is not None:
            ghosts.remove(ghost)
            found.append((one, ghost))
    return tuple(found) if not ghosts and any(_sizes(one.shape)[1:] for one, _ in found) else ()


def alike(shape: str, other: str) -> bool:
    """Whether two shapes may be those of a layer and of its replacement."""
    mine, theirs = _sizes(shape), _sizes(other)
    apart = sum(a != b for a, b in zip(mine, theirs, strict=False))
    return len(mine) == len(theirs) and apart <= 1


def _sizes(shape: str) -> list[str]:
    return shape.partition("]")[0].strip("[").split(", ")


def piles_up(hooks: Hooks) -> tuple[tuple[int, int], ...]:
    """The looks between which hooks were added each time, up to the last one; none where they
    were not."""
    looks = [hooks.looks[-1]] if hooks.looks else []
    for look in reversed(hooks.looks[:-1]):
        steps, more = looks[0][0] - look[0], looks[0][1] - look[1]
        if steps < LEAST or more * EACH < steps:
            break
        looks.insert(0, look)
    enough = len(looks) > LOOKS and looks[-1][0] - looks[0][0] >= ENOUGH
    return tuple(looks) if enough else ()


def outdated(schedulers: Sequence[Scheduler]) -> Scheduler | None:
    """The first one whose optimizer has made no steps for long."""
    long = (one for one in schedulers if one.counts >= BEYOND and one.idle >= ENOUGH)
    return next(long, None)


def counts_again(plateaus: Sequence[Plateau]) -> Plateau | None:
    """The first one that gets each number as many times, and more than once."""
    found = (one for one in plateaus if one.rounds >= ROUNDS and 1 < one.least == one.most)
    return next(found, None)


def unshared(found: Mapping[int, Loose]) -> Drift | None:
    """Where the parameters beside DDP differ between the ranks, of those that all have alike."""
    if len({(one.names, one.shapes) for one in found.values()}) > 1:
        return None
    differs = differs_at({rank: _as_replica(one) for rank, one in found.items()})
    last = min((one.checks[-1].step for one in found.values() if one.checks), default=0)
    long = differs is not None and not differs.again and last - differs.step >= ENOUGH // 2
    return differs if long else None


def _as_replica(one: Loose) -> Replica:
    return replace(Replica(), names=one.names, shapes=one.shapes, checks=one.checks)
