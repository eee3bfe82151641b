"""Worlds for the judges of a rehearsal: ranks with their groups, calls and places."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from preflight.checks import job_collectives
from preflight.domains.job.record import Calls, Collective, Frame, Group, Loader
from preflight.expect import Expect
from preflight.model import Found
from support.cases import world

TWO = (0, 1)
ALL = (0, 1, 2, 3)


def at(line: int, function: str = "step") -> Frame:
    return Frame("train.py", line, function, own=True)


def call(
    seq: int, op: str = "all_reduce", line: int = 38, shape: str = "[8] Float", **more: object
) -> Collective:
    made = Collective(seq, op, shape, at(line), done=False, timeout=1800.0)
    return replace(made, **more)  # type: ignore[arg-type]


def group(*last: Collective, done: int = 6, ranks: tuple[int, ...] = ALL, name: str = "0") -> Group:
    """A group with so many all-reduces done, then these calls."""
    before = tuple(call(n, done=True) for n in range(1, done + 1))
    enqueued = max((c.seq for c in last if not c.p2p), default=done)
    completed = done + sum(c.done for c in last)
    return Group(name, ranks, enqueued, completed, (*before, *last))


def rank(where: str, *groups: Group, line: int = 38, **more: object) -> Calls:
    made = Calls(
        world=4,
        why="stuck",
        at=where,
        still=21.0,
        quiet=21.0,
        stack=(at(line),),
        steps=6,
        batches=7,
        groups=groups or (group(),),
        seconds=33.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def job(*ranks: Calls, **all_of: object) -> dict[str, Calls]:
    """Of one node, numbered in their order, unless one has its number."""
    made = {}
    for number, seen in enumerate(ranks):
        numbered = seen if seen.rank is not None else replace(seen, rank=number)
        made[f"n1/{number}"] = replace(numbered, **all_of)  # type: ignore[arg-type]
    return made


WAITS = rank("collective", group(call(7)))
"""In all-reduce number 7, since 21 s."""
BEHIND = rank("own", line=99, wchan="hrtimer_nanosleep", state="S")
"""Elsewhere, six done."""


def over(why: str, *ranks: Calls, **more: object) -> dict[str, Calls]:
    """A job that did not hang."""
    return job(*ranks, **{"why": why} | more)


def gone(how: str, *groups: Group, **more: object) -> Calls:
    return rank("gone", *groups, ended=how, **more)


def loader(given: int, length: int | None = 10, *, done: bool = False, **more: object) -> Loader:
    return replace(Loader(length, given, done, 2, "SequentialSampler"), **more)  # type: ignore[arg-type]


GOES = rank("own", still=0.2, quiet=0.4, cpu=0.9)
"""At work, like all others."""


def pair(*last: Collective, **more: object) -> Group:
    return group(*last, ranks=TWO, **more)  # type: ignore[arg-type]


def turns(*lines: int, op: str = "all_reduce", functions: bool = True) -> Group:
    """Collectives that are done, from these lines, each in its function."""
    calls = (
        call(n, op, line, done=True, frame=at(line, f"f{line}" if functions else "step"))
        for n, line in enumerate(lines, 1)
    )
    return Group("0", (), len(lines), len(lines), tuple(calls))


def steady(*groups: Group) -> dict[str, Calls]:
    return over("time", *(replace(GOES, groups=(one,)) for one in groups))


OPS = st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"])


def told(calls: dict[int, Calls]) -> list[Found]:
    """What job.collectives finds in the calls of these ranks, four on a node."""
    saw = {f"n{r // 4}/{r}": replace(seen, rank=r) for r, seen in calls.items()}
    return list(job_collectives.judge(world("job.collectives", saw), Expect({})))


def named(findings: list[Found]) -> set[int]:
    """The ranks that they are about."""
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
