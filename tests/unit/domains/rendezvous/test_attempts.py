"""One agent by itself that did not get in: what it saw."""

from __future__ import annotations

import pytest
from support.cases import assert_case, judged
from support.rendezvous_cases import (
    ALL_CASES,
    ATTEMPTS,
    Row,
    assert_says_who_and_how_sure,
)

from preflight.checks import rdzv_reach
from preflight.model import (
    Status,
)


@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda c: c.name)
def test_judge(case: Row) -> None:
    assert_case(rdzv_reach, case)


@pytest.mark.parametrize("case", [c for c in ATTEMPTS if c.code], ids=lambda c: c.name)
def test_judge_says_who_and_how_sure(case: Row) -> None:
    assert_says_who_and_how_sure(case)


@pytest.mark.parametrize(
    "case", [c for c in ALL_CASES if c.name.startswith("by itself")], ids=lambda c: c.name
)
def test_who_did_not_get_in_has_a_fail_of_its_own_and_one_only(case: Row) -> None:
    assert [f.status for f in judged(rdzv_reach, case)] == [Status.FAIL]
