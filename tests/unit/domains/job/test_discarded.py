"""Gradients that are reset before they are used: in nearly all steps, or it is something else."""

from __future__ import annotations

from dataclasses import replace

from preflight.domains.job.discarded import Discarded, thrown_away

ALWAYS = Discarded("SGD", None, 40, 40, 120, 160)


def test_in_nearly_all_steps() -> None:
    assert thrown_away([ALWAYS]) is ALWAYS
    assert thrown_away([replace(ALWAYS, wasted=37)]) is not None


def test_now_and_then_is_a_batch_that_is_left_out() -> None:
    assert thrown_away([replace(ALWAYS, wasted=30), replace(ALWAYS, steps=7, wasted=7)]) is None
    assert thrown_away([]) is None
