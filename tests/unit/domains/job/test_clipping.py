"""Factors by which ranks scale gradients: which of them should have been equal."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from preflight.domains.job.clipping import (
    LIMIT,
    PARTS,
    SHARDS,
    Clip,
    ClippedApart,
    Clipping,
    clipped_apart,
)

SMALL = Clip(False, 4, 100, 60, limit=0.5, norm=1.0)
LARGE = replace(SMALL, norm=4.0)
NEVER = replace(SMALL, limit=9.0)


def apart(*clips: Clip, shards: tuple[int, ...] = (), unequal: int | None = None) -> str:
    looks = tuple((step, clips_of) for step, clips_of in enumerate([(SMALL,), (SMALL,), (SMALL,)]))
    found = {
        rank: Clipping(None, tuple((s, (one,) if s == 1 else c) for s, c in looks))
        for rank, one in enumerate(clips)
    }
    seen = clipped_apart(found, shards, unequal)
    assert seen is None or seen == ClippedApart(seen.why, 1, dict(enumerate(clips)))
    return "" if seen is None else seen.why


def flat(one: Clip) -> Clip:
    return replace(one, flat=True)


def test_the_factor_is_that_of_torch() -> None:
    assert SMALL.factor == pytest.approx(0.5, abs=1e-6)
    assert replace(SMALL, norm=0.1).factor == 1.0
    assert replace(SMALL, norm=0.0).factor == 1.0


def test_shards_of_fsdp() -> None:
    assert apart(flat(SMALL), flat(LARGE)) == SHARDS
    assert apart(flat(SMALL), flat(SMALL)) == ""
    assert apart(flat(SMALL), LARGE) == ""
    assert apart(flat(NEVER), flat(replace(NEVER, norm=4.0))) == ""


def test_shards_of_its_own_only_where_they_are_summed_as_such() -> None:
    assert apart(SMALL, LARGE, shards=(100,)) == PARTS
    assert apart(SMALL, LARGE, shards=(60, 7)) == PARTS
    assert apart(SMALL, LARGE, shards=(7,)) == ""
    assert apart(SMALL, LARGE) == ""
    assert apart(SMALL, replace(LARGE, count=3), shards=(100,)) == ""


def test_max_norm_only_right_before_the_models_come_apart() -> None:
    other = replace(SMALL, limit=0.2)
    assert apart(SMALL, other, unequal=2) == LIMIT
    assert apart(SMALL, other, unequal=1) == ""
    assert apart(SMALL, other, unequal=3) == ""
    assert apart(SMALL, other, unequal=None) == ""


def test_what_is_no_number_is_not_compared() -> None:
    for one in (replace(LARGE, norm=math.nan), replace(LARGE, norm=math.inf)):
        assert apart(flat(SMALL), flat(one)) == ""
    assert apart(flat(SMALL), flat(replace(LARGE, limit=math.inf))) == ""


def test_calls_that_others_do_not_make() -> None:
    one, two = Clipping(None, ((0, (flat(SMALL),)),)), Clipping(None, ((0, (flat(LARGE),) * 2),))
    assert clipped_apart({0: one, 1: two}, (), None) is None
    assert clipped_apart({0: one, 1: Clipping()}, (), None) is None
    assert clipped_apart({0: one}, (), None) is None
    assert clipped_apart({}, (), None) is None
