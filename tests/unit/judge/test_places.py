"""On which node a `do now` is to be typed."""

from __future__ import annotations

import pytest

from preflight.judge.places import placed
from preflight.model import Command, Fact, FindingType, Kind, Node, Subject, Topology


def nows(now: str, at: tuple[str, ...], nodes: tuple[str, ...], whole: int = 0) -> str:
    facts = {"nodes": Fact(str(whole), "--nodes")} if whole else {}
    here = tuple(Node(name, (i,)) for i, name in enumerate(nodes))
    top = Topology(size=max(whole, len(nodes)), nodes=here, facts=facts)
    subjects = tuple(Subject(Kind.NODE, name) for name in at)
    return placed(FindingType(cause="", means="", now=now), subjects, top).now


FOUR = ("h1", "h2", "h3", "h4")


@pytest.mark.parametrize(
    ("now", "at", "nodes", "wanted"),
    [
        ("unset X", ("h3",), FOUR, "unset X   on h3"),
        ("unset X", ("h3", "h4"), FOUR, "unset X   on h3 and h4"),
        ("unset X", ("h1", "h2", "h3"), FOUR, "unset X   on h[1-3]"),
        ("unset X", FOUR, FOUR, "unset X   on every node"),
        ("unset X   slower", ("h3",), FOUR, "unset X   on h3, slower"),
        ("unset X   on every node", ("h3",), FOUR, "unset X   on every node"),
        ("export X=1   before srun, in the job script", ("h3",), FOUR, None),
        ("preflight run --only net.mesh", ("h3",), FOUR, None),
        ("NCCL_DEBUG=INFO preflight run", ("h3",), FOUR, None),
        ("sbatch --exclude=h3   and your job script", ("h3",), FOUR, None),
        ("unset X", ("",), FOUR, None),
        ("unset X", ("h3\nreboot",), FOUR, None),
        ("unset X", ("h1",), ("h1",), None),
        ("unset X   on every node", ("h1",), ("h1",), "unset X"),
        ("unset X   on all ranks: slow", ("h1",), ("h1",), "unset X   slow"),
        ("", ("h3",), FOUR, None),
    ],
)
def test_where(now: str, at: tuple[str, ...], nodes: tuple[str, ...], wanted: str | None) -> None:
    assert nows(now, at, nodes) == (now if wanted is None else wanted)


def test_a_part_of_a_job_is_one_of_several_nodes() -> None:
    assert nows("unset X", ("h1",), ("h1",), whole=4) == "unset X   on h1"


def test_many_nodes_are_counted() -> None:
    names = tuple(f"rack{i}-{'x' * i}" for i in range(1, 13))
    assert nows("unset X", names[:9], names) == "unset X   on these 9 nodes"


def wheres(where: str, at: tuple[str, ...]) -> str:
    top = Topology(size=4, nodes=tuple(Node(name, (i,)) for i, name in enumerate(FOUR)))
    advice = FindingType(cause="", means="", commands=(Command("ip link", where),))
    (command,) = placed(advice, tuple(Subject(Kind.NODE, name) for name in at), top).commands
    return command.where


@pytest.mark.parametrize(
    ("where", "at", "wanted"),
    [
        ("the node", ("h3",), "the node"),
        ("the node", ("h3", "h4"), "h3 and h4"),
        ("the node", ("h1", "h2", "h4"), "h[1-2,4]"),
        ("the node", FOUR, "every node"),
        ("the node, as root", ("h3", "h4"), "h3 and h4, as root"),
        ("the node of rank 0", ("h3", "h4"), "the node of rank 0"),
        ("h2", ("h3", "h4"), "h2"),
        ("", ("h3", "h4"), ""),
    ],
)
def test_a_command_for_several_nodes_says_so(where: str, at: tuple[str, ...], wanted: str) -> None:
    assert wheres(where, at) == wanted
