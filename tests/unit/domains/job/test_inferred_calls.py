"""Ranks that could not tell their calls: what their counts and stacks say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import world
from support.rehearsed_worlds import at, call, group, rank

from preflight.checks import job_collectives
from preflight.domains.job.record import Calls, Frame, Group
from preflight.expect import Expect
from preflight.model import Confidence, Finding


def bare(function: str, enqueued: int, completed: int, line: int = 38) -> Calls:
    """Its counts and its stack."""
    inner = Frame("/x/torch/distributed/distributed_c10d.py", 3252, function)
    made = rank("collective", Group("0", (), enqueued, completed), world=3)
    return replace(made, stack=(inner, at(line)))


@pytest.mark.parametrize("full", [False, True], ids=["none", "one of them"])
def test_the_stack_says_what_the_recorder_does_not(full: bool) -> None:
    calls = {0: bare("all_reduce", 8, 7), 1: bare("broadcast", 8, 7, 20)}
    calls[2] = bare("all_reduce", 8, 7)
    if full:
        told_ = group(call(8, "_allreduce_base"), done=7, ranks=(0, 1, 2))
        calls[0] = replace(calls[0], groups=(told_,))
    findings = told(calls)
    assert [f.code for f in findings] == ["collective-mismatch"]
    assert named(findings) == {1}
    assert "rank 1: broadcast at train.py:20; ranks 0,2: all_reduce at train.py" in findings[0].saw


def test_by_the_stack_all_are_in_one_call() -> None:
    found = told({r: bare("all_reduce", 8, 7) for r in range(3)})
    assert [f.code for f in found] == ["fabric-stuck"]


def test_a_first_call_that_nothing_has_recorded_is_known_by_the_stack() -> None:
    """NCCL connects the ranks in there."""
    found = told({r: bare("all_reduce", 0, 0) for r in range(3)})
    assert [f.code for f in found] == ["fabric-stuck"]
    assert "all_reduce at train.py:38, the first call of its group" in found[0].saw
    assert found[0].confidence is Confidence.LIKELY


def test_first_calls_that_differ_are_a_mismatch() -> None:
    calls = {r: bare("all_reduce", 0, 0) for r in range(3)}
    calls[1] = bare("broadcast", 0, 0, 20)
    found = told(calls)
    assert [f.code for f in found] == ["collective-mismatch"]
    assert named(found) == {1}
    # one may well call it at another line
    calls[1] = bare("all_reduce", 0, 0, 20)
    assert [f.code for f in told(calls)] == ["fabric-stuck"]


def test_a_rank_that_does_not_come_to_the_first_call() -> None:
    calls = {r: bare("all_reduce", 0, 0) for r in range(3)}
    calls[1] = replace(rank("own", Group("0", (), 0, 0), line=99), world=3)
    found = told(calls)
    assert [f.code for f in found] == ["rank-stuck"]
    assert named(found) == {1}


def test_by_the_stack_one_is_behind() -> None:
    calls = {r: bare("all_reduce", 8, 5) for r in range(3)}  # done, but not counted yet
    calls[1] = replace(rank("own", Group("0", (), 7, 7), line=99), world=3)
    found = told(calls)
    assert [f.code for f in found] == ["rank-stuck"]
    assert named(found) == {1}


def test_by_the_stack_nobody_receives() -> None:
    found = told({0: bare("send", 5, 5, 12), 1: bare("all_reduce", 6, 5, 13)})
    assert [f.code for f in found] == ["peer-mismatch"]
    assert named(found) == {0}


def test_in_backward_the_stack_says_nothing() -> None:
    """Where a rank is in no function of torch.distributed, it may be in any of its calls."""
    calls = {r: bare("all_reduce", 8, 7) for r in range(3)}
    calls[1] = replace(calls[1], stack=(at(38),))
    assert named(told(calls)) in (set(), {0, 1, 2})


def test_a_group_made_by_some() -> None:
    making = replace(rank("init", Group("0", (), 1, 1), line=15), world=3)
    found = told({0: making, 1: making, 2: bare("all_reduce", 1, 0, 16)})
    assert [f.code for f in found] == ["collective-mismatch"]
    assert "new_group at train.py:15 in step, for rank 2" in found[0].saw


def test_who_only_receives_has_done_no_collective() -> None:
    full = group(call(1), done=0, ranks=(0, 1, 2))
    waits = rank("collective", full, world=3)
    found = told({0: waits, 1: replace(bare("recv", 0, 0, 14), groups=()), 2: waits})
    assert [f.code for f in found] == ["peer-mismatch"]
    assert named(found) == {1}


def test_all_make_a_group_and_not_the_same() -> None:
    one = group(done=1, ranks=(0, 1, 2))
    calls = {r: rank("init", one, line=12 if r < 2 else 19, world=3) for r in range(3)}
    calls = {r: replace(seen, stack=(at(12 if r < 2 else 19),)) for r, seen in calls.items()}
    found = told(calls)
    assert [f.code for f in found] == ["collective-mismatch"]
    assert "train.py:12" in found[0].saw
    assert "train.py:19" in found[0].saw


def told(calls: dict[int, Calls]) -> list[Finding]:
    saw = {f"n{r // 4}/{r}": replace(seen, rank=r) for r, seen in calls.items()}
    return list(job_collectives.judge(world("job.collectives", saw), Expect({})))


def named(findings: list[Finding]) -> set[int]:
    return {r for finding in findings for subject in finding.subjects for r in subject.ranks}
