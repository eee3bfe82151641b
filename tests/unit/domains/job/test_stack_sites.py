"""Ranks of which only the stacks are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.domains.job.hang import Hang
from preflight.domains.job.hang_causes import hang_cause
from preflight.domains.job.record import Calls, Frame, Group
from preflight.domains.job.stack_sites import SUBGROUP, from_stacks, group_of_stack, with_arguments
from preflight.model import Confidence, Found

API = "/venv/site-packages/torch/distributed/distributed_c10d.py"


def standing(op: str, line: int, subgroup: bool = False) -> tuple[str, int, bool]:
    return op, line, subgroup


def rank_at(rank: int, world: int, op: str, line: int, subgroup: bool) -> Calls:
    stack = (Frame(API, 9, op), Frame("train.py", line, "main", own=True))
    group = with_arguments(group_of_stack(stack, world), rank, {"group": "x"} if subgroup else {})
    return Calls(rank, world, "stuck", "collective", 6.0, 6.0, stack=stack, groups=(group,))


def hang(*sites: tuple[str, int, bool], own: int = 0) -> Hang:
    calls = {r: rank_at(r, len(sites) + own, *site) for r, site in enumerate(sites)}
    for rank in range(len(sites), len(sites) + own):
        stack = (Frame("train.py", 3, "main", own=True),)
        calls[rank] = Calls(rank, len(sites) + own, "stuck", "own", 6.0, 6.0, stack=stack)
    return Hang(calls, {r: f"n1/{r}" for r in calls}, {})


REDUCE, BARRIER = standing("all_reduce", 8), standing("barrier", 20)


def ranks(found: Found | None) -> list[int] | None:
    return [r for s in found.subjects for r in s.ranks] if found else None


@pytest.mark.parametrize(
    ("sites", "suspects"),
    [
        ((REDUCE, REDUCE, BARRIER), [2]),
        ((BARRIER, BARRIER, REDUCE, BARRIER), [2]),
        ((REDUCE, REDUCE, standing("all_reduce", 40)), [2]),
        # of two nobody is more, nor of three that are all elsewhere
        ((REDUCE, BARRIER), []),
        ((REDUCE, BARRIER, standing("broadcast", 9)), []),
        # who is in a call of all ranks waits for those that are in one of a smaller group
        (
            (
                standing("all_reduce", 8, True),
                standing("all_reduce", 8, True),
                standing("all_gather", 9, True),
                BARRIER,
            ),
            [2],
        ),
        # all in one place, and a root that broadcasts from a line of its own
        ((REDUCE, REDUCE), None),
        ((standing("broadcast", 4), standing("broadcast", 6)), None),
    ],
)
def test_the_fewer_are_suspected(
    sites: tuple[tuple[str, int, bool], ...], suspects: list[int] | None
) -> None:
    found = from_stacks(hang(*sites))
    assert ranks(found) == suspects
    if found is not None:
        assert all(
            f"{op}" in found.saw and f"train.py:{line}" in found.saw for op, line, _ in sites
        )
        assert "number " not in found.saw
        assert (found.confidence is Confidence.POSSIBLE) == (not suspects)


def test_a_rank_that_is_in_no_call_is_what_the_others_wait_for() -> None:
    one = hang(REDUCE, BARRIER, own=1)
    assert from_stacks(one) is None
    found = hang_cause(one)
    assert found is not None
    assert (found.code, ranks(found)) == ("rank-stuck", [2])


def test_all_in_one_call_may_be_one_call_apart() -> None:
    found = hang_cause(hang(REDUCE, REDUCE))
    assert found is not None
    assert (found.code, found.confidence) == ("fabric-stuck", Confidence.POSSIBLE)
    assert "number" not in found.saw


def test_backward_is_a_call_and_send_has_another_end() -> None:
    stack = (Frame("/x/torch/autograd/graph.py", 3, "_engine_run_backward"),)
    assert group_of_stack(stack, 2).calls[0].op == "backward()"
    sends: Group = group_of_stack((Frame(API, 3, "send"),), 4)
    assert with_arguments(sends, 1, {"dst": "3"}).calls[0].op == "send 1->3"
    assert with_arguments(sends, 1, {"dst": "<object>"}) == sends
    reduces = group_of_stack((Frame(API, 3, "all_reduce"),), 4)
    assert with_arguments(reduces, 1, {"group": "x"}).calls[0].shape == SUBGROUP


def test_ranks_in_calls_of_two_kinds_wait_for_each_other() -> None:
    """Two are in a call of all, and two in a send and a recv of the wrong group's numbers."""
    one = hang(REDUCE, REDUCE, standing("send", 38), standing("recv", 41))
    for rank, other in ((2, {"dst": "1"}), (3, {"src": "0"})):
        seen = one.calls[rank]
        group = with_arguments(group_of_stack(seen.stack, 4), rank, other)
        one.calls[rank] = replace(seen, groups=(group,))  # type: ignore[index]
    found = hang_cause(one)
    assert found is not None
    assert (found.code, ranks(found)) == ("peer-mismatch", [2, 3])
    assert "send 2->1" in found.saw
    assert "recv 3<-0" in found.saw


def rooted(*roots: str, op: str = "broadcast") -> Hang:
    one = hang(*[standing(op, 54, True)] * len(roots))
    for rank, root in enumerate(roots):
        seen = one.calls[rank]
        told = {"root": root, "group": "x"} if root else {"group": "x"}
        group = with_arguments(group_of_stack(seen.stack, len(roots)), rank, told)
        one.calls[rank] = replace(seen, groups=(group,))  # type: ignore[index]
    return one


def test_each_waits_for_another_root() -> None:
    found = from_stacks(rooted("1", "0"))
    assert found is not None
    assert (found.code, found.confidence) == ("collective-mismatch", Confidence.POSSIBLE)
    assert "rank 0: broadcast of a smaller group from rank 1 at train.py:54" in found.saw
    assert "a call ahead" in found.alternatives[0]


def test_one_root_or_one_that_is_not_known() -> None:
    assert from_stacks(rooted("1", "1")) is None
    assert from_stacks(rooted("1", "")) is None
    assert from_stacks(rooted("1", "<object>")) is None
