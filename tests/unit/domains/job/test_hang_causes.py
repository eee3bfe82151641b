"""In random worlds with one planted culprit that one is named, or nobody."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.cases import world
from support.rehearsed_worlds import ALL, BEHIND, OPS, WAITS, call, named, rank, told, waiting

from preflight.checks import job_collectives
from preflight.domains.job.record import Calls, Group, Loader
from preflight.expect import Expect


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
    at=st.sampled_from(["collective", "loader", "init", "own", "store", "gone", "unknown"]),
    leaving=st.booleans(),
    keys=st.sampled_from([(), ("ready",), ("a", "b")]),
    pause=st.floats(0, 50),
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
        assert finding.code in job_collectives.FINDINGS


def test_what_sleeps_while_others_wait_is_told() -> None:
    calls = {
        0: replace(WAITS, why="time", still=30.0, quiet=30.0),
        1: replace(BEHIND, why="time", pause=30.0),
    }
    (found,) = told(calls)
    assert (found.code, named([found])) == ("rank-busy", {1})
    assert "using 0% of a CPU, in a sleep of 30.0 s" in found.saw
