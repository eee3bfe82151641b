"""Agents that were in the meeting and were lost."""

from __future__ import annotations

import pytest
from support.cases import assert_case, judged
from support.rendezvous_cases import (
    ALL,
    DISCONNECTED,
    Row,
    assert_accuses_nobody_else,
    assert_says_who_and_how_sure,
    came,
    findings_of,
    here,
    hosting,
    row,
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


def test_of_two_that_are_process_1_only_the_one_that_spoke_had_others_behind_it() -> None:
    """In containers of their own."""
    spoke = came(4, pid=1, ranks=(6,), lost="it was killed")
    behind = came(4, pid=1, ranks=(7,), lost="it was killed", through=1)
    before = came(4, pid=1, ranks=(5,), lost="it ended")
    all_of = row("", here(hosting(*ALL[:2], spoke, behind, before)), "lost")
    said = {f.subjects[0].ranks: f.saw for f in findings_of(all_of) if f.code == "lost"}
    assert said.keys() == {(6,), (5,)}
    assert "rank 7 of n4 could be heard through it alone" in said[6,]
    assert "heard through" not in said[5,]
