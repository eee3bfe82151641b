"""Where the ranks of a script part before a collective."""

from __future__ import annotations

from textwrap import dedent

import pytest

from preflight.domains.script.divergence import divergences
from preflight.domains.script.source import parse_module


def found(text: str) -> list[tuple[int, str]]:
    module = parse_module(f"import torch.distributed as dist\n{dedent(text)}".encode(), "train.py")
    return [(hit.line, hit.other) for hit in divergences((module,))]


def test_a_collective_under_a_test_of_the_rank() -> None:
    text = "def save(rank):\n    if rank == 0:\n        dist.barrier()\n"
    assert found(text) == [(4, "barrier under 'if rank == 0', line 3")]


def test_a_way_out_before_a_collective() -> None:
    text = "def save(rank):\n    if rank != 0:\n        return\n    dist.all_reduce(x)\n"
    assert found(text) == [(4, "left under 'if rank != 0'; all_reduce follows in line 5")]


def test_a_collective_in_a_function_that_is_called() -> None:
    text = "def sync():\n    dist.barrier()\ndef save(rank):\n    if rank == 0:\n        sync()\n"
    assert found(text) == [(6, "sync(), which calls barrier, under 'if rank == 0', line 5")]


@pytest.mark.parametrize(
    "text",
    [
        "if rank == 0:\n    dist.barrier()\nelse:\n    dist.barrier()\n",
        "if rank == 0:\n    dist.barrier()\nif rank != 0:\n    dist.barrier()\n",
        "def first():\n    if rank == 0:\n        dist.barrier()\n"
        "def rest():\n    if rank != 0:\n        dist.barrier()\n",
        "if rank == 0:\n    dist.barrier()\nelse:\n    unknown.meet()\n",
        "if args.sync:\n    dist.barrier()\n",
        "if rank == 0:\n    dist.barrier(group=mine)\n",
    ],
    ids=["both ways", "two tests", "two functions", "unknown call", "a setting", "own group"],
)
def test_what_evens_out_is_silent(text: str) -> None:
    assert found(text) == []
