"""Agents that never got in, and addresses before the one that works."""

from __future__ import annotations

import pytest
from support.cases import assert_case
from support.rendezvous_cases import (
    NOT_ADMITTED,
    Row,
    assert_accuses_nobody_else,
    assert_says_who_and_how_sure,
)

from preflight.checks import rdzv_reach


@pytest.mark.parametrize("case", NOT_ADMITTED, ids=lambda c: c.name)
def test_judge(case: Row) -> None:
    assert_case(rdzv_reach, case)


@pytest.mark.parametrize("case", [c for c in NOT_ADMITTED if c.code], ids=lambda c: c.name)
def test_judge_says_who_and_how_sure(case: Row) -> None:
    assert_says_who_and_how_sure(case)


@pytest.mark.parametrize("case", [c for c in NOT_ADMITTED if c.about], ids=lambda c: c.name)
def test_nobody_else_is_accused(case: Row) -> None:
    assert_accuses_nobody_else(case)
