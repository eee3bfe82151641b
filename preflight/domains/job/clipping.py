"""By how much the ranks scale their gradients, and where that differs and should not. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import isclose, isfinite
from typing import Final

from preflight.domains.job.frame import Frame
from preflight.frozen import dataclass

SHARDS, PARTS, LIMIT = "shards", "parts", "limit"
"""Why ranks scale by different factors: FSDP has sharded what each takes the norm of; so has the
script itself; or max_norm is not the same."""
APART: Final = 1e-3
"""Part of a factor or a norm by which it differs; equal gradients give norms that are equal to
far more digits."""
TINY = 1e-6
"""What clip_grad_norm_ adds to a norm before it divides by it."""


@dataclass(frozen=True, slots=True)
class Clip:
    """One call of clip_grad_norm_ or clip_grads_with_norm_, on `count` parameters that have
    `numbers` in all, the largest of them `largest`; limit: max_norm; flat: FSDP has put them into
    flat parameters, of which each rank has its own part."""

    flat: bool
    count: int
    numbers: int
    largest: int
    limit: float
    norm: float

    @property
    def factor(self) -> float:
        """By which it has multiplied the gradients."""
        return min(1.0, self.limit / (self.norm + TINY))


@dataclass(frozen=True, slots=True)
class Clipping:
    """Of one rank. frame: the user's line that clipped first; looks: steps, and the calls before
    the next step."""

    frame: Frame | None = None
    looks: tuple[tuple[int, tuple[Clip, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class ClippedApart:
    """Where ranks scale by different factors first: before step `step` + 1, for this reason."""

    why: str
    step: int
    by_rank: Mapping[int, Clip]


def clipped_apart(
    found: Mapping[int, Clipping], shards: Collection[int], unequal: int | None
) -> ClippedApart | None:
    """The first call in which ranks scale by different factors, where these should be equal.
    shards: how many numbers each rank keeps of vectors that are summed over the ranks; unequal:
    after how many steps the ranks have different models, None: they have not. Ranks that have other
    layers than each other take different norms rightly, so that a norm alone says nothing."""
    looks = {rank: dict(one.looks) for rank, one in found.items()}
    if len(looks) < 2:
        return None
    common = sorted(set.intersection(*(set(own) for own in looks.values())))
    for at, step in enumerate(common):
        after = common[at + 1] if at + 1 < len(common) else None
        for clips in _together({rank: own[step] for rank, own in looks.items()}):
            if (why := _reason(clips, shards)) is None:
                continue
            if why == LIMIT and (unequal is None or not step < unequal <= (after or unequal)):
                continue
            return ClippedApart(why, step, clips)
    return None


def scaled_apart(
    found: Mapping[int, Clipping], gradients: Mapping[int, Mapping[int, float]]
) -> dict[int, Clip]:
    """Of each rank the first call that scales gradients which ranks have in common by a factor of
    its own; none where they differ for another reason. gradients: of each rank, by the step, one
    that has been clipped."""
    looks = {rank: dict(one.looks) for rank, one in found.items()}
    if len(looks) < 2 or looks.keys() != gradients.keys():
        return {}
    steps = set.intersection(*(set(own) for own in (*looks.values(), *gradients.values())))
    for step in sorted(steps):
        calls = {rank: own[step] for rank, own in looks.items()}
        if any(len(own) != 1 or not own[0].factor > 0 for own in calls.values()):
            continue
        clips = {rank: own[0] for rank, own in calls.items()}
        now = {rank: own[step] for rank, own in gradients.items()}
        before = [now[rank] / clip.factor for rank, clip in clips.items()]
        alike = all(isclose(one, before[0], rel_tol=APART) for one in before)
        if alike and not all(isclose(n, now[min(now)], rel_tol=APART) for n in now.values()):
            return clips
    return {}


def _together(calls: Mapping[int, tuple[Clip, ...]]) -> Iterator[dict[int, Clip]]:
    """Of each rank its first call before a step, its second one, …; none where a rank makes
    others."""
    if len({len(own) for own in calls.values()}) == 1:
        for number in range(len(next(iter(calls.values())))):
            yield {rank: own[number] for rank, own in calls.items()}


def _reason(clips: Mapping[int, Clip], shards: Collection[int]) -> str | None:
    every = list(clips.values())
    first = every[0]
    if not all(isfinite(one.norm) and 0 < one.limit < float("inf") for one in every):
        return None
    if all(isclose(one.factor, first.factor, rel_tol=APART) for one in every):
        return None
    if all(one.flat for one in every):
        return SHARDS
    if any(one.flat for one in every) or len({(o.count, o.numbers) for o in every}) > 1:
        return None
    if all(isclose(one.norm, first.norm, rel_tol=APART) for one in every):
        return LIMIT
    limits = len({one.limit for one in every}) == 1
    return PARTS if limits and {first.numbers, first.largest} & {*shards} else None
