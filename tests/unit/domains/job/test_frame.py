"""A place of a stack, in words."""

from __future__ import annotations

from preflight.domains.job.frame import Frame


def test_a_place_is_a_file_and_a_line() -> None:
    assert str(Frame("train.py", 40, "main", own=True)) == "train.py:40"
