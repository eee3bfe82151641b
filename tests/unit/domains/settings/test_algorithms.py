"""algorithms: the collectives that NCCL_ALGO leaves without one, and the NCCL that minds."""

from __future__ import annotations

import pytest

from preflight.domains.settings.algorithms import (
    ALGORITHMS,
    OF_COLLECTIVE,
    collectives_without_algorithm,
    entries,
    falls_back,
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


def test_every_algorithm_is_one_of_some_collective() -> None:
    assert frozenset().union(*OF_COLLECTIVE.values()) == frozenset(ALGORITHMS.lower().split())


def test_entries() -> None:
    assert entries("ring,tree;allreduce:^tree;") == [("", "ring,tree"), ("allreduce", "^tree")]
    assert entries("allgather:nvls,reduce:ring") == [("allgather", "nvls,reduce")]
    assert entries(":;") == []


def test_who_falls_back_to_ring() -> None:
    assert [falls_back(v) for v in ("2.21.5", "2.23.4", "2.9.9")] == [True] * 3
    assert [falls_back(v) for v in ("2.24.3", "2.27.3", "3.0", "", "2", "2.x.1")] == [False] * 6
