"""Failed edges between nodes: what they point at, and how that is said."""

from __future__ import annotations

from itertools import permutations

import pytest

from preflight.domains.net.fault_localisation import (
    ALL,
    EITHER,
    LINK,
    NAMED,
    NODE,
    SPLIT,
    Pair,
    describe_edges,
    link_subjects,
    suspects,
)
from preflight.inference import BOTH, INBOUND, OUTBOUND
from preflight.model import Blame, Confidence, Kind, Node, Topology

NODES = ("a", "b", "c", "d")
EDGES: list[Pair] = list(permutations(NODES, 2))
TOPOLOGY = Topology(size=4, nodes=tuple(Node(n, (i,)) for i, n in enumerate(NODES)))


@pytest.mark.parametrize(
    ("failed", "what", "names", "at"),
    [
        (EDGES, ALL, NODES, ""),
        ([e for e in EDGES if e[1] == "c"], NODE, ("c",), INBOUND),
        ([e for e in EDGES if e[0] == "c"], NODE, ("c",), OUTBOUND),
        ([e for e in EDGES if "c" in e], NODE, ("c",), BOTH),
        ([("a", "b"), ("b", "a")], LINK, ("a", "b"), ""),
        ([e for e in EDGES if len({*e} & {"a", "b"}) == 1], SPLIT, ("a, b", "c, d"), ""),
    ],
)
def test_what_failed_edges_point_at(
    failed: list[Pair], what: str, names: tuple[str, ...], at: str
) -> None:
    (suspect,) = suspects(failed, EDGES)
    assert (suspect.what, suspect.names, suspect.at) == (what, names, at)
    assert set(suspect.edges) == set(failed)
    assert suspect.blame is (Blame.NODE if what == NODE else Blame.NETWORK)


def test_where_nothing_failed_nobody_is_suspected() -> None:
    assert list(suspects([], EDGES)) == []


def test_of_two_nodes_neither_is_told_from_what_lies_between() -> None:
    (suspect,) = suspects([("a", "b")], [("a", "b"), ("b", "a")])
    assert suspect.what == EITHER
    assert suspect.confidence is Confidence.POSSIBLE
    assert suspect.alternatives("the port") == (
        "the port of a",
        "the port of b",
        "what is between them",
    )


def test_a_suspected_node_is_the_first_of_its_ends() -> None:
    (suspect,) = suspects([e for e in EDGES if e[1] == "c"], EDGES)
    assert suspect.ends == ("c", "a")
    assert suspect.where(EDGES) == "3 of 3 connections into c"
    assert [(s.kind, s.node, s.ranks) for s in suspect.subjects(TOPOLOGY)] == [
        (Kind.NODE, "c", (2,))
    ]


def test_many_edges_are_the_jobs() -> None:
    assert describe_edges(EDGES).endswith("a->d, b->a and 8 more")
    assert [s.kind for s in link_subjects(EDGES[:2], TOPOLOGY)] == [Kind.LINK] * 2
    many = [(f"n{i}", "a") for i in range(NAMED + 1)]
    assert [s.kind for s in link_subjects(many, TOPOLOGY)] == [Kind.JOB]
