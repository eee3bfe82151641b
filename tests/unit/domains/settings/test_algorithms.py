"""algorithms: the collectives that NCCL_ALGO leaves without one, and the NCCL that minds."""

from __future__ import annotations

import pytest

from preflight.domains.settings.algorithms import (
    ALGORITHMS,
    OF_COLLECTIVE,
    collectives_without_algorithm,
    entries,
    falls_back,
    with_ring,
)

ROOTED = ("Broadcast", "Reduce")
GATHERING = ("AllGather", "ReduceScatter")


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        *((value, ()) for value in ("", "Ring", "rING", "Tree,Ring", "^Tree", "^nvls,PAT", ";")),
        *((value, ()) for value in ("allreduce:tree", "ring;allreduce:tree", "AllReduce:^Tree")),
        ("Tree", (*ROOTED, *GATHERING)),
        ("COLLNETCHAIN", (*ROOTED, *GATHERING)),
        ("NVLSTree", (*ROOTED, *GATHERING)),
        ("CollnetDirect", ROOTED),
        ("NVLS", ROOTED),
        ("PAT", (*ROOTED, "AllReduce")),
        ("^Ring", ROOTED),
        ("Tree;broadcast:ring", ("Reduce", *GATHERING)),
        ("ring;allgather:tree", ("AllGather",)),
        ("allreduce:pat", ("AllReduce",)),
        ("newfunction:tree", ()),
    ],
)
def test_collectives_without_algorithm(value: str, missing: tuple[str, ...]) -> None:
    assert collectives_without_algorithm(value) == missing


@pytest.mark.parametrize(
    ("value", "protocols", "version", "missing"),
    [
        ("allreduce:tree", "Simple", "2.31.2", (*ROOTED, *GATHERING)),
        ("allreduce:tree", "^LL128", "3.0", (*ROOTED, *GATHERING)),
        ("allreduce:tree", "broadcast:Simple", "2.31.2", ("Broadcast",)),
        ("allreduce:tree", "allreduce:Simple", "2.31.2", ()),
        ("allreduce:tree", "", "2.31.2", ()),
        ("allreduce:tree", "Simple", "2.30.7", ()),
        ("allreduce:tree", "Simple", "", ()),
        ("ring,tree;allreduce:tree", "Simple", "2.31.2", ()),
        ("", "Simple", "2.31.2", ()),
    ],
)
def test_a_protocol_for_collectives_that_are_not_named(
    value: str, protocols: str, version: str, missing: tuple[str, ...]
) -> None:
    assert collectives_without_algorithm(value, protocols, version) == missing


@pytest.mark.parametrize(
    ("value", "better"),
    [
        ("Tree", "ring;allreduce:tree"),
        ("NVLS,Tree", "ring;allreduce:nvls,tree"),
        ("allreduce:tree", "ring;allreduce:tree"),
        ("PAT", "ring,tree"),
        ("^Ring", "ring;allreduce:^ring"),
        ("broadcast:tree", "ring,tree"),
        ("Tree;allgather:ring", "ring;allreduce:tree;allgather:ring"),
    ],
)
def test_what_to_write_instead(value: str, better: str) -> None:
    assert with_ring(value) == better
    assert collectives_without_algorithm(better, "Simple", "2.31.2") == ()


def test_every_algorithm_is_one_of_some_collective() -> None:
    assert frozenset().union(*OF_COLLECTIVE.values()) == frozenset(ALGORITHMS.lower().split())


def test_entries() -> None:
    assert entries("ring,tree;allreduce:^tree;") == [("", "ring,tree"), ("allreduce", "^tree")]
    assert entries("allgather:nvls,reduce:ring") == [("allgather", "nvls,reduce")]
    assert entries(":;") == []


def test_who_falls_back_to_ring() -> None:
    assert [falls_back(v) for v in ("2.21.5", "2.23.4", "2.9.9")] == [True] * 3
    assert [falls_back(v) for v in ("2.24.3", "2.27.3", "3.0", "", "2", "2.x.1")] == [False] * 6
