"""mismatch_advice: how the calls of ranks came apart, where that shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from preflight import sanitize
from preflight.domains.job.collective_order import mismatches
from preflight.domains.job.hang import Hang
from preflight.domains.job.mismatch_advice import OFTEN, RECENT, mismatch_advice, pair_advice
from preflight.domains.job.record import Calls, Collective, Frame, Group


def at(line: int, function: str = "main") -> Frame:
    return Frame("train.py", line, function, own=True)


def call(op: str, line: int, function: str = "main", *, root: int | None = None, shape: str = "[4]"
         ) -> Collective:  # fmt: skip
    return Collective(0, op, f"{shape} Float", at(line, function), root=root)


def advised(
    own: Mapping[int, Sequence[Collective]], stacks: Mapping[int, Sequence[Frame]] | None = None
) -> str:
    """Of ranks that made these calls; each waits in its last one."""
    calls = {}
    for rank, made in own.items():
        numbered = [replace(one, seq=seq) for seq, one in enumerate(made, 1)]
        numbered[-1] = replace(numbered[-1], done=False)
        group = Group("0", tuple(own), len(made), len(made) - 1, tuple(numbered))
        stack = tuple((stacks or {}).get(rank, ()))
        calls[rank] = Calls(rank=rank, world=len(own), groups=(group,), stack=stack)
    groups = {("0", tuple(own)): {rank: seen.groups[0] for rank, seen in calls.items()}}
    hang = Hang(calls, {rank: f"n1/{rank}" for rank in own}, groups)
    (one,) = mismatches(groups)
    place, said = mismatch_advice(hang, one) or ("", "")
    assert sanitize.PROSE.fullmatch(said), said
    return f"{place}: {said}"


STEP = [call("all_reduce", 20)] * 3


def test_who_leaves_the_loop_is_told_what_to_agree_on() -> None:
    stays, leaves = [*STEP, call("all_reduce", 20)], [*STEP, call("barrier", 40, shape="")]
    said = advised({0: stays, 1: leaves, 2: leaves})
    assert said.startswith("train.py:40: find out what brings ranks 1-2 alone there")
    said = advised({0: leaves, 1: stays, 2: stays})
    assert said.startswith("train.py:40: find out what brings rank 0 alone there")


def test_nobody_leaves_where_both_calls_are_new_or_both_are_old() -> None:
    one, other = [*STEP, call("barrier", 40)], [*STEP, call("all_gather", 50)]
    assert advised({0: one, 1: other, 2: other}) == ": "
    both = [call("barrier", 40), *STEP]
    assert advised({0: [*both, call("barrier", 40)], 1: [*both, call("all_reduce", 20)]}) == ": "


@pytest.mark.parametrize("between", range(RECENT + 1))
def test_what_was_reduced_for_one_rank_may_have_decided(between: int) -> None:
    before = [call("reduce", 30, root=0), *[call("all_reduce", 20)] * between]
    said = advised({
        0: [*before, call("all_gather", 50)],
        1: [*before, call("barrier", 20)],
    })  # fmt: skip
    assert ("train.py:30: use all_reduce" in said) == (between < RECENT)


def test_a_backward_that_leaves_a_call_out() -> None:
    """Not so where the others have never made it: they may be ahead, in a model of their own."""
    exchange = call("all_to_all", 22, "backward")
    inside, outside = [exchange, *STEP, exchange], [exchange, *STEP, call("all_reduce", 20)]
    said = advised({0: outside, 1: inside, 2: inside})
    assert said.startswith("train.py:22: find out why backward leaves it out on rank 0")
    never = [call("barrier", 7), *STEP, call("all_reduce", 20)]
    assert "backward" not in advised({
        0: never, 1: [call("barrier", 7), *STEP, exchange], 2: [call("barrier", 7), *STEP, exchange]
    })  # fmt: skip


def broadcasts(*roots: int, shapes: Sequence[str]) -> str:
    calls = {
        rank: [*STEP, call("broadcast", 64, root=root, shape=shapes[rank])]
        for rank, root in enumerate(roots)
    }
    return advised(calls)


def test_one_line_with_another_src_and_tensor_is_another_order() -> None:
    assert "train.py:64: sort what this loop" in broadcasts(2, 0, 0, shapes=("[4]", "[6]", "[6]"))
    assert "train.py:64: give the same src" in broadcasts(0, 1, 2, shapes=("[4]",) * 3)
    assert broadcasts(0, 0, 1, shapes=("[4]",) * 3) == (
        "train.py:64: all ranks are there, and not with one src or dst"
    )


def test_all_at_one_line_is_not_called_some() -> None:
    def gathered(rows: int) -> Collective:
        return replace(call("all_gather", 50), output=f"[{rows}, 4] Float")

    said = advised({0: [*STEP, gathered(2)], 1: [*STEP, gathered(3)]})
    assert said == "train.py:50: all ranks are there, and not with room for as much as all bring"


def test_join_answers_for_ddp_alone() -> None:
    join = Frame("/venv/site-packages/torch/distributed/algorithms/join.py", 260, "__exit__")
    said = advised(
        {0: [*STEP, call("all_reduce", 98)], 1: [*STEP, call("all_gather", 25)]},
        {0: [join, at(98)]},
    )
    assert said.startswith("train.py:25: rank 0 has no data left, and Join answers for")


def test_who_has_sent_often_goes_around_less_often() -> None:
    def said(sends: int, op: str = "recv 1<-0", own: Frame | None = None, to: int = 1) -> str:
        sent = [Collective(n, f"send 0->{to}", "[4] Float", p2p=True) for n in range(sends)]
        sender = Calls(rank=0, world=2, groups=(Group("0", (0, 1), calls=tuple(sent)),))
        sender = replace(sender, stack=(own,) if own else ())
        return pair_advice({0: sender}, Collective(9, op, "[4] Float", p2p=True), 0)

    here = at(130)
    told = said(OFTEN, own=here)
    assert "rank 0 is at train.py:130 after 3 sends or more" in told
    assert sanitize.PROSE.fullmatch(told)
    assert said(OFTEN - 1, own=here) == ""
    assert said(OFTEN, "send 0->1", own=here) == said(OFTEN, own=here, to=2) == ""
    assert said(OFTEN) == ""
    assert pair_advice({}, Collective(9, "recv 1<-0", "", p2p=True), None) == ""
