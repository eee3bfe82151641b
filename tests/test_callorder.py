"""callorder, whowaits: of random worlds with one planted culprit that one is named, or nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hanging import ALL, at, call, group, pair, rank, turns
from hypothesis import given
from hypothesis import strategies as st
from support import world

from preflight.checks import job_collectives
from preflight.domains.job import kernel_wait as standstill
from preflight.domains.job.collective_order import (
    Amount,
    amount,
    differences,
    groups,
    last,
    numbered,
    swaps,
)
from preflight.domains.job.record import Calls, Frame, Group, Loader, Process
from preflight.domains.job.wait_graph import picture
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
    assert amount(shape) == expected


@given(st.text(max_size=400))
def test_any_shape(text: str) -> None:
    amount(text)


def test_shapes_of_one_size_are_equal() -> None:
    known = {
        ("0", ()): {0: group(call(7, shape="[8, 2] Float")), 1: group(call(7, shape="[16] Float"))}
    }
    assert differences(known) == ()


def test_parts_of_a_coalesced_call_are_left_out() -> None:
    coalesced = group(call(7, "all_gather"), call(7, "reduce"))
    assert 7 not in numbered(coalesced)
    assert differences({("0", ()): {0: coalesced, 1: group(call(7))}}) == ()


def test_calls_between_two_are_not_compared() -> None:
    known = {("0", ()): {0: group(call(7, "send 0->1", p2p=True)), 1: group(call(7))}}
    assert differences(known) == ()
    assert last(known["0", ()][0]) == 6


def test_groups_of_other_ranks_are_other_groups() -> None:
    calls = {
        0: rank("own", pair(call(7), name="tp")),
        2: rank("own", replace(pair(call(7, "broadcast"), name="tp"), ranks=(2, 3))),
    }
    assert differences(groups(calls)) == ()


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


def test_in_init_they_wait_for_who_has_no_group() -> None:
    seen = picture({0: replace(rank("init"), groups=()), 1: replace(rank("init"), groups=())})
    assert seen.behind == dict.fromkeys((0, 1), frozenset({2, 3}))
    assert seen.unseen == (2, 3)
    calls = {0: replace(rank("init"), groups=(), world=2)}
    calls[1] = replace(rank("own"), groups=(), world=2)
    seen = picture(calls)
    assert (seen.behind, seen.roots) == ({0: frozenset({1})}, (1,))


def test_a_mate_is_found_by_its_number_in_the_group() -> None:
    inside = replace(pair(call(1, "send 0->1", p2p=True), name="pp"), ranks=(4, 6))
    seen = picture({4: rank("collective", inside), 6: rank("own", replace(inside, calls=()))})
    assert seen.behind[4] == {6}


@pytest.mark.parametrize(
    ("state", "wchan", "remote"),
    [
        ("D", "nfs_wait_on_request", True),
        ("S", "request_wait_answer", True),
        ("D", "rpc_wait_bit_killable", True),
        ("D", "folio_wait_bit_common", False),
        ("D", "", False),
        ("S", "folio_wait_bit_common", None),
        ("S", "futex_do_wait", None),
        ("D", "nvidia_ioctl", None),
        ("S", "locks_lock_inode_wait", None),
        ("D", "flock_lock_inode_wait", None),
        ("S", "hrtimer_nanosleep", None),
        ("", "", None),
    ],
)
def test_what_is_a_file_system(state: str, wchan: str, remote: bool | None) -> None:
    found = standstill.storage(state, wchan)
    assert (found.remote if found is not None else None) == remote
    child = standstill.storage("S", "futex_do_wait", (Process(1, "w", state, wchan),))
    assert (child.remote if child is not None else None) == remote


# --- ranks that could not tell their calls ---


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
    assert [f.code for f in findings] == ["collective-differs"]
    assert named(findings) == {1}
    assert "rank 1: broadcast at train.py:20; ranks 0, 2: all_reduce at train.py" in findings[0].saw


def test_by_the_stack_all_are_in_one_call() -> None:
    found = told({r: bare("all_reduce", 8, 7) for r in range(3)})
    assert [f.code for f in found] == ["fabric-stuck"]


def test_by_the_stack_one_is_behind() -> None:
    calls = {r: bare("all_reduce", 8, 5) for r in range(3)}  # done, but not counted yet
    calls[1] = replace(rank("own", Group("0", (), 7, 7), line=99), world=3)
    found = told(calls)
    assert [f.code for f in found] == ["rank-stuck"]
    assert named(found) == {1}


def test_by_the_stack_nobody_receives() -> None:
    found = told({0: bare("send", 5, 5, 12), 1: bare("all_reduce", 6, 5, 13)})
    assert [f.code for f in found] == ["collective-differs"]
    assert named(found) == {0}


def test_in_backward_the_stack_says_nothing() -> None:
    """Where a rank is in no function of torch.distributed, it may be in any of its calls."""
    calls = {r: bare("all_reduce", 8, 7) for r in range(3)}
    calls[1] = replace(calls[1], stack=(at(38),))
    assert named(told(calls)) in (set(), {0, 1, 2})


def test_a_group_made_by_some() -> None:
    making = replace(rank("init", Group("0", (), 1, 1), line=15), world=3)
    found = told({0: making, 1: making, 2: bare("all_reduce", 1, 0, 16)})
    assert [f.code for f in found] == ["collective-differs"]
    assert "new_group at train.py:15 in step, for rank 2" in found[0].saw


def test_who_only_receives_has_done_no_collective() -> None:
    full = group(call(1), done=0, ranks=(0, 1, 2))
    waits = rank("collective", full, world=3)
    found = told({0: waits, 1: replace(bare("recv", 0, 0, 14), groups=()), 2: waits})
    assert [f.code for f in found] == ["collective-differs"]
    assert named(found) == {1}


def test_all_make_a_group_and_not_the_same() -> None:
    one = group(done=1, ranks=(0, 1, 2))
    calls = {r: rank("init", one, line=12 if r < 2 else 19, world=3) for r in range(3)}
    calls = {r: replace(seen, stack=(at(12 if r < 2 else 19),)) for r, seen in calls.items()}
    found = told(calls)
    assert [f.code for f in found] == ["collective-differs"]
    assert "train.py:12" in found[0].saw
    assert "train.py:19" in found[0].saw


# --- random worlds with one culprit ---


OPS = st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"])


def told(calls: dict[int, Calls]) -> list[Finding]:
    saw = {f"n{r // 4}/{r}": replace(seen, rank=r) for r, seen in calls.items()}
    return list(job_collectives.judge(world("job.collectives", saw), Expect({})))


def named(findings: list[Finding]) -> set[int]:
    return {r for finding in findings for subject in finding.subjects for r in subject.ranks}


@st.composite
def waiting(draw: st.DrawFn) -> tuple[dict[int, Calls], int]:
    """Ranks of a job in equal groups and one of all, that all wait, each in the call to which its
    culprit has not come: directly, or behind a rank that waits in a small group."""
    size = draw(st.integers(2, 12))
    culprit = draw(st.integers(0, size - 1))
    ranks = tuple(range(size))
    seq = draw(st.integers(2, 9))
    op = draw(OPS)
    others = [r for r in ranks if r != culprit]
    whole = group(call(seq, op), done=seq - 1, ranks=ranks)
    behind = group(done=seq - 1, ranks=ranks)
    calls = {r: rank("collective", whole, world=size) for r in ranks}
    small = ()
    if draw(st.booleans()):
        between = draw(st.sampled_from(others))
        members = tuple(sorted((between, culprit)))
        open_one = group(call(3, draw(OPS)), done=2, name="tp", ranks=members)
        small = (replace(open_one, calls=open_one.calls[:-1], enqueued=2),)
        calls[between] = rank("collective", behind, open_one, world=size)
    calls[culprit] = rank("own", behind, *small, line=99, world=size)
    return calls, culprit


@given(waiting())
def test_who_is_elsewhere(planted: tuple[dict[int, Calls], int]) -> None:
    calls, culprit = planted
    findings = told(calls)
    assert [f.code for f in findings] == ["rank-stuck"]
    assert named(findings) == {culprit}
    assert "train.py:99" in findings[0].saw


@given(waiting(), st.sampled_from(["raised", "vanished", "exited"]))
def test_who_has_ended_is_not_ours(planted: tuple[dict[int, Calls], int], how: str) -> None:
    calls, culprit = planted
    calls[culprit] = replace(calls[culprit], at="gone", ended=how)
    assert named(told(calls)) <= {culprit}


@given(waiting(), st.data())
def test_who_has_no_data_left(planted: tuple[dict[int, Calls], int], data: st.DataObject) -> None:
    calls, culprit = planted
    length = data.draw(st.integers(3, 20))
    more = data.draw(st.integers(1, 4))
    ended = data.draw(st.sampled_from(["", "exited"]))
    for r in calls:
        given_ = Loader(length + more, length + 1)
        calls[r] = replace(calls[r], loader=given_, batches=length + 1)
    done = Loader(length, length, exhausted=True)
    calls[culprit] = replace(calls[culprit], loader=done, batches=length, ended=ended)
    if ended:
        calls[culprit] = replace(calls[culprit], at="gone")
    findings = told(calls)
    assert [f.code for f in findings] == ["data-uneven"]
    assert named(findings) == {culprit}


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
    assert [f.code for f in findings] == ["collective-differs"]
    assert named(findings) == {culprit}


@given(st.integers(2, 8), st.lists(st.sampled_from([11, 12, 13, 14]), min_size=2, max_size=30))
def test_equal_orders_are_silent(size: int, lines: list[int]) -> None:
    calls = {
        r: rank("own", turns(*lines), why="time", still=0.1, quiet=0.1, world=size)
        for r in range(size)
    }
    assert told(calls) == []


@given(st.integers(2, 6), st.data())
def test_any_progress_of_a_healthy_job_is_silent(size: int, data: st.DataObject) -> None:
    """At whatever calls ranks of a job are caught that all make the same."""
    program = data.draw(st.lists(st.tuples(OPS, st.integers(1, 5)), min_size=4, max_size=20))
    least = data.draw(st.integers(0, len(program) - 2))
    calls = {}
    for r in range(size):
        ahead = data.draw(st.integers(0, 1))
        made = [
            call(n, op, line, done=n <= least)
            for n, (op, line) in enumerate(program[: least + ahead], 1)
        ]
        where = "collective" if ahead else "own"
        one = Group("0", tuple(range(size)), len(made), least, tuple(made))
        calls[r] = rank(where, one, why="time", still=3.0, quiet=3.0, steps=1, world=size)
    assert told(calls) == []


CALLS = st.builds(
    Calls,
    rank=st.none() | st.integers(0, 5),
    world=st.integers(0, 6),
    why=st.sampled_from(["ended", "stuck", "time", "steps", "blind", "other"]),
    at=st.sampled_from(["collective", "loader", "init", "own", "gone", "unknown"]),
    still=st.floats(0, 50),
    quiet=st.floats(0, 50),
    groups=st.lists(
        st.builds(
            Group,
            st.sampled_from(["0", "x"]),
            st.sampled_from([(), (0, 1), ALL]),
            st.integers(0, 9),
            st.integers(0, 9),
            st.lists(
                st.builds(
                    call,
                    st.integers(0, 9),
                    st.sampled_from(["all_reduce", "send 0->1", "recv 1<-0", "send"]),
                    shape=st.sampled_from(["", "[8] Float", "[4] Int", "x"]),
                    p2p=st.booleans(),
                    done=st.booleans(),
                ),
                max_size=3,
            ).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    loader=st.none() | st.builds(Loader, exhausted=st.booleans(), given=st.integers(0, 3)),
    batches=st.integers(0, 9),
    state=st.sampled_from(["", "S", "D", "T"]),
    wchan=st.sampled_from(["", "nfs_x", "pipe_read", "0"]),
    ended=st.sampled_from(["", "raised", "exited", "vanished"]),
)


@given(st.lists(CALLS, max_size=5))
def test_whatever_is_told_is_judged(seen: list[Calls]) -> None:
    """Records come out of the user's processes: any of them must lead to at most one cause."""
    saw = {f"n1/{r}": calls for r, calls in enumerate(seen)}
    findings = list(job_collectives.judge(world("job.collectives", saw), Expect({})))
    assert len(findings) <= 1
    job_collectives.measured(world("job.collectives", saw))
    for finding in findings:
        assert finding.subjects
        assert finding.code in job_collectives.ADVICE
