"""What ranks draw at random between a batch and the forward of their model: noise, timesteps and
the like. Ranks that were seeded alike draw the same for different samples. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from preflight.frozen import dataclass

LOOKS = 4
"""Steps in which all ranks draw the same before it is said."""
LEAST = 16
"""Numbers in a step: fewer may be a size or a choice that all ranks have to share."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Of one rank, before its step number `step` from 0: a number that stands for the state of the
    generator on the CPU, equal for equal states, and how many numbers this has given since the
    batch came, at least; the same of the generator of its GPU, by how much its counter went on.
    None: not known."""

    step: int
    cpu: int
    drawn: int
    gpu: int | None = None
    counted: int = 0


@dataclass(frozen=True, slots=True)
class SameDraws:
    """All ranks drew the same in these steps, counted: on the CPU at least `numbers` in each, 0: on
    a GPU, of which nobody knows how many."""

    steps: int
    numbers: int


def same_draws(
    found: Mapping[int, Sequence[Draw]], samples: Mapping[int, float]
) -> SameDraws | None:
    """Where all ranks draw numbers for each sample, and the same in all steps that were looked at.
    samples: of a batch, by rank."""
    on_cpu = _alike(
        found, lambda rank, one: one.cpu if one.drawn >= max(LEAST, samples[rank]) else None
    )
    if on_cpu:
        first = next(iter(found.values()))
        return SameDraws(len(on_cpu), min(one.drawn for one in first if one.step in on_cpu))
    on_gpu = _alike(found, lambda _, one: one.gpu if one.counted else None)
    return SameDraws(len(on_gpu), 0) if on_gpu else None


def _alike(
    found: Mapping[int, Sequence[Draw]], state: Callable[[int, Draw], int | None]
) -> Sequence[int]:
    """The steps in which all ranks draw, where they are alike in all of these, and enough; `state`:
    of a look at which enough was drawn."""
    known = [
        {one.step: now for one in looks if (now := state(rank, one)) is not None}
        for rank, looks in found.items()
    ]
    steps = sorted(set(known[0]).intersection(*known)) if len(known) > 1 else []
    alike = all(len({one[step] for one in known}) == 1 for step in steps)
    return steps if alike and len(steps) >= LOOKS else ()
