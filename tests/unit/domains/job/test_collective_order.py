"""Whether the ranks make the same calls in the same order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import world
from support.rehearsed_worlds import call, group, pair, rank, turns

from preflight.checks import job_collectives
from preflight.domains.job.collective_order import (
    Amount,
    calls_by_seq,
    groups_by_key,
    last_seq,
    mismatches,
    mixed_groups,
    parse_shape,
    swaps,
)
from preflight.domains.job.record import Calls, Group
from preflight.expect import Expect
from preflight.model import Finding


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("[8, 3] Float", Amount(24, "Float")),
        ("[] Long", Amount(1, "Long")),
        ("[8] Float; [4] Float", Amount(12, "Float")),
        ("[8] Float; [4] Half", Amount(12, "Float Half")),
        ("[0] Float", Amount(0, "Float")),
        ("", None),
        ("Float", None),
        ("[8", None),
        ("[-1] Float", None),
        ("[8] Float;", None),
        ("[٣] Float", None),
    ],
)
def test_shapes(shape: str, expected: Amount | None) -> None:
    assert parse_shape(shape) == expected


@given(st.text(max_size=400))
def test_any_shape(text: str) -> None:
    parse_shape(text)


def test_shapes_of_one_size_are_equal() -> None:
    known = {
        ("0", ()): {0: group(call(7, shape="[8, 2] Float")), 1: group(call(7, shape="[16] Float"))}
    }
    assert mismatches(known) == ()


def test_parts_of_a_coalesced_call_are_left_out() -> None:
    coalesced = group(call(7, "all_gather"), call(7, "reduce"))
    assert 7 not in calls_by_seq(coalesced)
    assert mismatches({("0", ()): {0: coalesced, 1: group(call(7))}}) == ()


def test_calls_between_two_are_not_compared() -> None:
    known = {("0", ()): {0: group(call(7, "send 0->1", p2p=True)), 1: group(call(7))}}
    assert mismatches(known) == ()
    assert last_seq(known["0", ()][0]) == 6


BOTH = "[12, 1024] Float"


@pytest.mark.parametrize(
    ("given", "odd"),
    [
        # who sends more than the others, and nobody has room for it
        ([(BOTH, BOTH), ("[408, 1024] Float", BOTH), (BOTH, BOTH)], (1,)),
        # who has room for more than it gets
        ([(BOTH, BOTH), (BOTH, BOTH), (BOTH, "[24, 1024] Float")], (2,)),
        # two alone: either of them
        ([(BOTH, BOTH), (BOTH, "[24, 1024] Float")], (0, 1)),
        # tokens are routed unevenly, and it adds up
        ([(BOTH, "[4, 1024] Float"), ("[4, 1024] Float", BOTH), (BOTH, BOTH)], None),
        # a list that was cut off, or of which nothing is known
        ([(BOTH, BOTH), ("[1] Float; " * 40, BOTH), (BOTH, BOTH)], None),
        ([(BOTH, BOTH), ("[408, 1024] Float", ""), (BOTH, BOTH)], None),
    ],
)
@pytest.mark.parametrize("done", [False, True])
def test_what_is_sent_must_have_room(
    given: list[tuple[str, str]], odd: tuple[int, ...] | None, done: bool
) -> None:
    key = ("0", tuple(range(len(given))))
    members = {
        rank: group(replace(call(9, "all_to_all", shape=sent), output=room, done=done))
        for rank, (sent, room) in enumerate(given)
    }
    found = mismatches({key: members})
    wanted = [odd] if odd and not done else []
    assert [(one.what, one.odd) for one in found] == [("exchange", odd) for odd in wanted]
    # not all ranks of the group are seen: the others may have room for it
    members.pop(0)
    assert mismatches({key: members}) == ()


ROWS, FEWER = "[3072, 512] Float", "[2229, 512] Float"


@pytest.mark.parametrize(
    ("given", "odd"),
    [
        # each has room for as much from the others as it brings itself
        ([(ROWS, "[2, 3072, 512] Float"), (FEWER, "[2, 2229, 512] Float")], (0, 1)),
        ([(ROWS, "[3, 3072, 512] Float")] * 2 + [(FEWER, "[3, 2229, 512] Float")], (2,)),
        # all know how much the others bring
        ([(ROWS, f"{ROWS}; {FEWER}"), (FEWER, f"{ROWS}; {FEWER}")], None),
        ([(ROWS, ""), (FEWER, "")], None),
        ([(ROWS, "[2, 3072, 512] Float"), (FEWER, "[1] Float; " * 40)], None),
    ],
)
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("op", ["all_gather", "_all_gather_base"])
def test_what_is_gathered_must_have_room(
    given: list[tuple[str, str]], odd: tuple[int, ...] | None, done: bool, op: str
) -> None:
    key = ("0", tuple(range(len(given))))
    members = {
        rank: group(replace(call(9, op, shape=brings), output=room, done=done))
        for rank, (brings, room) in enumerate(given)
    }
    found = mismatches({key: members}, equal=frozenset())
    assert [(one.what, one.odd) for one in found] == [("gather", odd) for odd in [odd] if odd]


def test_groups_of_other_ranks_are_other_groups() -> None:
    calls = {
        0: rank("own", pair(call(7), name="tp")),
        2: rank("own", replace(pair(call(7, "broadcast"), name="tp"), ranks=(2, 3))),
    }
    assert mismatches(groups_by_key(calls)) == ()


@pytest.mark.parametrize(
    ("lines", "odd"),
    [
        (([1, 2, 3], [1, 3, 2], [1, 2, 3]), {1}),
        (([1, 2], [2, 1], [1, 2], [1, 2]), {1}),
        (([1, 2, 9, 3], [3, 2, 9, 1], [1, 2, 9, 3]), {1}),
        (([1, 2], [2, 1]), {0, 1}),
        (([1, 1, 2], [1, 2, 2]), set()),  # a shift, which will end in a hang
        (([1, 2, 1], [2, 2, 2], [1, 2, 1]), set()),  # a branch of its own
        (([1, 2], [3, 4]), set()),
        (([1, 2, 2], [2, 1, 2], [2, 2, 1]), set()),  # each is the first in turn
    ],
)
def test_swaps(lines: tuple[list[int], ...], odd: set[int]) -> None:
    known = {("0", ()): {r: turns(*of) for r, of in enumerate(lines)}}
    assert {r for swap in swaps(known) for r in swap.odd} == odd


def test_a_swap_is_silent_where_not_all_are_seen() -> None:
    one, other = (replace(turns(*lines), ranks=(0, 1, 2)) for lines in ((1, 2), (2, 1)))
    assert swaps({("0", (0, 1, 2)): {0: one, 1: other}}) == ()


OPS = st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"])


def told(calls: dict[int, Calls]) -> list[Finding]:
    saw = {f"n{r // 4}/{r}": replace(seen, rank=r) for r, seen in calls.items()}
    return list(job_collectives.judge(world("job.collectives", saw), Expect({})))


def named(findings: list[Finding]) -> set[int]:
    return {r for finding in findings for subject in finding.subjects for r in subject.ranks}


@given(st.integers(3, 12), st.integers(1, 40), OPS, OPS, st.data())
def test_who_calls_something_else(
    size: int, seq: int, usual: str, other: str, data: st.DataObject
) -> None:
    culprit = data.draw(st.integers(0, size - 1))
    ranks = tuple(range(size))
    calls = {}
    for r in ranks:
        one = call(seq, other if r == culprit else usual, 77 if r == culprit else 38)
        calls[r] = rank("collective", group(one, done=seq - 1, ranks=ranks), world=size)
    findings = told(calls)
    if usual == other:
        # from another line is no fault: then all have come
        assert [f.code for f in findings] == ["fabric-stuck"]
        return
    assert [f.code for f in findings] == ["collective-mismatch"]
    assert named(findings) == {culprit}


@given(st.integers(2, 8), st.lists(st.sampled_from([11, 12, 13, 14]), min_size=2, max_size=30))
def test_equal_orders_are_silent(size: int, lines: list[int]) -> None:
    calls = {
        r: rank("own", turns(*lines), why="time", still=0.1, quiet=0.1, world=size)
        for r in range(size)
    }
    assert told(calls) == []


def test_groups_of_one_number_without_a_common_rank() -> None:
    def group(name: str, *ranks: int) -> dict[int, Group]:
        return {rank: Group(name, ranks) for rank in ranks}

    halves = {("1", (0, 1)): group("1", 0, 1), ("1", (2, 3)): group("1", 2, 3)}
    assert mixed_groups(halves) is None  # NCCL may have split them from one
    found = mixed_groups(halves, gloo=range(4))
    assert found is not None
    assert found.odd == (0, 1, 2, 3)
    named = {("a1", (0, 1)): group("a1", 0, 1), ("a1", (2, 3)): group("a1", 2, 3)}
    assert mixed_groups(named, gloo=range(4)) is None
    alone = {("1", (0,)): group("1", 0), ("1", (1,)): group("1", 1)}
    assert mixed_groups(alone, gloo=range(2)) is None
