"""Ranks that did not come, and their hosts."""

from __future__ import annotations

import dataclasses

import pytest
from support.cases import assert_case, judged, topology
from support.rendezvous_cases import (
    ABSENT_RANKS,
    ALL,
    UP,
    Row,
    assert_accuses_nobody_else,
    assert_says_who_and_how_sure,
    here,
    hosting,
    ranks_of,
    row,
)

from preflight.checks import rdzv_reach
from preflight.domains.rendezvous.attempts import AbsentHost
from preflight.identity.slurm_hosts import ExpectedHost
from preflight.model import Fact, Status


@pytest.mark.parametrize("case", ABSENT_RANKS, ids=lambda c: c.name)
def test_judge(case: Row) -> None:
    assert_case(rdzv_reach, case)


@pytest.mark.parametrize("case", [c for c in ABSENT_RANKS if c.code], ids=lambda c: c.name)
def test_judge_says_who_and_how_sure(case: Row) -> None:
    assert_says_who_and_how_sure(case)


@pytest.mark.parametrize("case", [c for c in ABSENT_RANKS if c.about], ids=lambda c: c.name)
def test_nobody_else_is_accused(case: Row) -> None:
    assert_accuses_nobody_else(case)


def test_who_waits_for_a_host_that_was_never_started_is_no_failure() -> None:
    case = next(
        c for c in ABSENT_RANKS if c.name.startswith("ssh is refused by the host of the meeting")
    )
    found = judged(rdzv_reach, case)
    assert [(f.code, f.status) for f in found] == [
        ("not-reached", Status.MISSING),
        ("refused", Status.MISSING),
    ]


def test_a_thousand_absent_ranks_are_one_finding() -> None:
    few = hosting(*ALL, size=8192)
    (finding,) = judged(rdzv_reach, row("", here(few), "absent"))
    assert len(finding.subjects) == 1
    assert "ranks 8-8191 never connected" in finding.saw


def test_of_many_absent_hosts_those_that_were_looked_at_speak_for_all() -> None:
    due = tuple(ExpectedHost(f"n{n:02}", ranks_of(n)) for n in range(1, 21))
    sought = tuple(AbsentHost(f"n{n:02}", (f"10.0.0.{n}",), "", UP) for n in range(4, 12))
    first = tuple(dataclasses.replace(a, host=f"n{i:02}") for i, a in enumerate(ALL[:3], 1))
    (finding,) = judged(
        rdzv_reach,
        row("", here(hosting(*first, size=40, expected=due, sought=sought, host="n01")), "x"),
    )
    assert finding.code == "absent-host-up"
    assert len(finding.subjects) == 17
    assert "nobody from n[04-20] (ranks 6-39)" in finding.saw


@pytest.mark.parametrize(
    ("nodes", "ranks", "split", "surplus"),
    [
        (5, (2, 2, 2, 2), ["ranks 8-15"], 0),  # nobody knows what the fifth node would have
        (4, (2, 2, 2, 2), ["ranks 8-15"], 8),
        (4, (1, 1, 1), ["rank 3", "ranks 4-15"], 4),
        (0, (1, 1, 1), ["ranks 3-15"], 0),
    ],
)
def test_ranks_beyond_those_of_all_nodes_are_apart(
    nodes: int, ranks: tuple[int, ...], split: list[str], surplus: int
) -> None:
    first, came = 0, []
    for arrival, count in zip(ALL, ranks, strict=False):
        came.append(dataclasses.replace(arrival, ranks=tuple(range(first, first + count))))
        first += count
    facts = {"nodes": Fact(str(nodes), "--nodes")} if nodes else {}
    seen = here(hosting(*came, size=16))
    found = judged(rdzv_reach, row("", seen, "absent", topology=topology(size=16, facts=facts)))
    assert [f.saw.partition("; ")[2].partition(" never")[0] for f in found] == split
    said = f"the nodes of this run have {surplus} ranks: WORLD_SIZE counts"
    assert found[-1].alternatives[0].startswith(said) is bool(surplus)
