"""Weights that were one: trained apart for long, or just now."""

from __future__ import annotations

from dataclasses import replace

from preflight.domains.job.tied import Untied, trained_apart


def test_for_long() -> None:
    one = Untied("embed.weight", "head.weight", "[40, 8] float32", None, 0, 32)
    assert trained_apart([one, replace(one, since=24)]) == (one,)
