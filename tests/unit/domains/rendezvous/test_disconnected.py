"""Agents that were in the meeting and were lost."""

from __future__ import annotations

import pytest
from support.cases import assert_case, judged
from support.rendezvous_cases import (
    DISCONNECTED,
    Row,
    assert_accuses_nobody_else,
    assert_says_who_and_how_sure,
    findings_of,
)

from preflight.checks import rdzv_reach


@pytest.mark.parametrize("case", DISCONNECTED, ids=lambda c: c.name)
def test_judge(case: Row) -> None:
    assert_case(rdzv_reach, case)


@pytest.mark.parametrize("case", [c for c in DISCONNECTED if c.code], ids=lambda c: c.name)
def test_judge_says_who_and_how_sure(case: Row) -> None:
    assert_says_who_and_how_sure(case)


@pytest.mark.parametrize("case", [c for c in DISCONNECTED if c.about], ids=lambda c: c.name)
def test_nobody_else_is_accused(case: Row) -> None:
    assert_accuses_nobody_else(case)


@pytest.mark.parametrize(
    "case", [c for c in DISCONNECTED if "spoke for its node was lost" in c.name]
)
def test_whose_speaker_is_lost_is_not_accused(case: Row) -> None:
    (finding,) = findings_of(case)
    assert [s.ranks for s in finding.subjects] == [(6,)]


def test_of_a_host_that_was_lost_nothing_else_is_said() -> None:
    case = next(c for c in DISCONNECTED if c.name.startswith("the host of the meeting was lost"))
    assert [f.code for f in judged(rdzv_reach, case)] == ["lost"]
