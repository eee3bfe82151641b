"""What the optimizers of the ranks are set to, and where that differs between ranks that DDP gives
the same gradients. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isclose

from preflight.domains.job.frame import Frame
from preflight.domains.job.replica import odd_ones
from preflight.frozen import dataclass

RATE, STATE, PASSES = "lr", "state", "passes"
"""Names of settings; the latter two are none, but have to be the same as well: how many steps the
optimizer counts in its state, and how many forward passes DDP has made."""
CLOSE = 1e-6
"""Part of a number by which it may differ: ranks compute it alike, or not."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Of one parameter group. averaged: DDP averages gradients of it."""

    averaged: bool
    values: tuple[tuple[str, tuple[float, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class SettingsLook:
    """Before a step. step: how many this optimizer had made; clock: how many the one had by which
    models are compared."""

    step: int
    clock: int
    groups: tuple[GroupSettings, ...]


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """Of one optimizer of a rank.

    frame, schedule  the user's lines that make it and its scheduler
    signature        equal for equal shapes of its parameters
    changes          step, clock, group and learning rate, where one changed; complete before the
                     step `full`, where there is one
    """

    kind: str
    signature: int
    frame: Frame | None = None
    schedule: Frame | None = None
    looks: tuple[SettingsLook, ...] = ()
    changes: tuple[tuple[int, int, int, float], ...] = ()
    full: int | None = None


@dataclass(frozen=True, slots=True)
class SettingApart:
    """A setting that differs between ranks before a step: `step` and `clock` as of SettingsLook, no
    longer the same since a look `agreed` steps after the start (-1: it never was). by_rank: its
    numbers; odd: the ranks that have others than most, or all; `more`: other settings that differ
    then."""

    name: str
    group: int
    groups: int
    by_rank: Mapping[int, tuple[float, ...]]
    step: int
    clock: int
    agreed: int
    odd: tuple[int, ...]
    more: tuple[str, ...] = ()


def unlike(
    found: Mapping[int, Sequence[OptimizerSettings]],
) -> tuple[SettingApart, Mapping[int, OptimizerSettings]] | None:
    """The first of their optimizers with a setting that differs between ranks; only of one that
    all ranks have made alike. What a rank alone has trained before is none of them."""
    shared = {rank: [one for one in of if _trains_shared(one)] for rank, of in found.items()}
    known = shared if all(shared.values()) else found
    for number in range(min(map(len, known.values()), default=0)):
        own = {rank: of[number] for rank, of in known.items()}
        if len({(one.kind, one.signature) for one in own.values()}) == 1:
            first = _first(own)
            if first is not None:
                return first, own
    return None


def _trains_shared(one: OptimizerSettings) -> bool:
    return any(group.averaged for look in one.looks for group in look.groups)


def _first(own: Mapping[int, OptimizerSettings]) -> SettingApart | None:
    looks = {rank: {look.step: look for look in one.looks} for rank, one in own.items()}
    agreed = -1
    for step in sorted(set.intersection(*(set(of) for of in looks.values()))):
        now = {rank: of[step] for rank, of in looks.items()}
        differ = list(_differing(now))
        if differ:
            group, name, by_rank = differ[0]
            many = len(next(iter(now.values())).groups)
            clock = next(iter(now.values())).clock
            if name == RATE and agreed >= 0:
                known = _earlier(own, group, agreed, step)
                if known is not None:
                    step, clock, by_rank = known
                    agreed = step - 1
            odd, _ = odd_ones(by_rank)
            more = tuple(dict.fromkeys(other for _, other, _ in differ if other != name))
            return SettingApart(name, group, many, by_rank, step, clock, agreed, odd, more)
        if agreed >= 0 and (apart := _meanwhile(own, now, agreed, step)) is not None:
            return apart
        agreed = step
    return None


def _meanwhile(
    own: Mapping[int, OptimizerSettings], now: Mapping[int, SettingsLook], agreed: int, step: int
) -> SettingApart | None:
    """Learning rates that differed between two looks, and at neither of them: one rank lowers its
    own a few steps after the others."""
    many = min(len(look.groups) for look in now.values())
    for group in range(many):
        if all(look.groups[group].averaged for look in now.values()):
            known = _earlier(own, group, agreed, step)
            if known is not None:
                at, clock, by_rank = known
                odd, _ = odd_ones(by_rank)
                return SettingApart(RATE, group, many, by_rank, at, clock, at - 1, odd)
    return None


def _differing(
    now: Mapping[int, SettingsLook],
) -> Iterator[tuple[int, str, dict[int, tuple[float, ...]]]]:
    """Group, setting and its numbers by rank; not of groups of which a rank averages nothing."""
    for number, groups in enumerate(zip(*(look.groups for look in now.values()), strict=False)):
        if not all(group.averaged for group in groups):
            continue
        values = {rank: dict(group.values) for rank, group in zip(now, groups, strict=True)}
        for name in next(iter(values.values())):
            by_rank = {rank: of[name] for rank, of in values.items() if name in of}
            first = next(iter(by_rank.values()))
            if len(by_rank) == len(now) and not all(_same(first, of) for of in by_rank.values()):
                yield number, name, by_rank


def _same(one: Sequence[float], other: Sequence[float]) -> bool:
    return len(one) == len(other) and all(
        isclose(a, b, rel_tol=CLOSE, abs_tol=1e-15) for a, b in zip(one, other, strict=True)
    )


def _earlier(
    own: Mapping[int, OptimizerSettings], group: int, agreed: int, step: int
) -> tuple[int, int, dict[int, tuple[float, ...]]] | None:
    """The very step since which the learning rates differ, its clock and the rates by rank, as far
    as all changes were kept."""
    between = [
        (at, tick)
        for one in own.values()
        for at, tick, number, _ in one.changes
        if number == group and agreed < at <= step
    ]
    for at, tick in sorted(between):
        if any(one.full is not None and one.full <= at for one in own.values()):
            break
        rates = {rank: _rate(one, group, at) for rank, one in own.items()}
        first = next(iter(rates.values()))
        if not all(_same(first, rate) for rate in rates.values()):
            return at, tick, rates
    return None


def _rate(one: OptimizerSettings, group: int, step: int) -> tuple[float, ...]:
    """The learning rate of a group in a step."""
    known: list[tuple[int, tuple[float, ...]]] = []
    known += [(at, (rate,)) for at, _, number, rate in one.changes if number == group]
    for look in one.looks:
        for number, settings in enumerate(look.groups):
            if number == group:
                known += [(look.step, of) for name, of in settings.values if name == RATE]
    return max((entry for entry in known if entry[0] <= step), default=(0, ()))[1]


def is_idle(one: OptimizerSettings) -> bool:
    """Whether all its learning rates were 0 when it was looked at last."""
    groups = one.looks[-1].groups if one.looks else ()
    rates = [rate for group in groups for rate in dict(group.values).get("lr", (1.0,))]
    return bool(rates) and not any(rates)
