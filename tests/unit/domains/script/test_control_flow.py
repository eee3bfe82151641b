"""The collectives of a script in the order in which each rank gets to them."""

from __future__ import annotations

import ast

import pytest

from preflight.domains.script.control_flow import (
    all_paths,
    collectives,
    is_collective,
    reaching_a_collective,
)
from preflight.domains.script.source import Module, parse_module

HEAD = "import sys\nimport torch.distributed as dist\n"


def module(text: str) -> Module:
    return parse_module((HEAD + text).encode(), "train.py")


def by_rank(text: str) -> list[list[str]]:
    """The names of the collectives of each rank in the module's own statements."""
    made = module(text)
    paths = all_paths(made, made.scopes[0], frozenset(), reaching_a_collective(made))
    return [[step.kind for step in collectives(path)] for path in paths]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("dist.barrier()", "barrier"),
        ("dist.all_reduce(x, group=None)", "all_reduce"),
        ("dist.all_reduce(x, group=dist.group.WORLD)", "all_reduce"),
        ("dist.all_reduce(x, dist.ReduceOp.SUM, mine)", ""),
        ("dist.broadcast(x, 0, group=mine)", ""),
        ("dist.all_reduce(*args)", ""),
        ("dist.all_reduce(x, **more)", ""),
        ("dist.new_group([0])", "new_group"),
        ("dist.new_group([0], use_local_synchronization=True)", ""),
        ("accelerator.wait_for_everyone()", "wait_for_everyone"),
        ("dist.get_rank()", ""),
        ("barrier()", ""),
    ],
)
def test_what_is_a_collective_of_all(call: str, name: str) -> None:
    made = module(f"{call}\n")
    (found,) = [c for _, c in made.calls() if ast.unparse(c) == call]
    assert is_collective(found, made) == name


def test_each_rank_has_its_path() -> None:
    text = (
        "if rank == 0:\n    dist.broadcast(x, 0)\nelse:\n    dist.barrier()\ndist.all_reduce(x)\n"
    )
    assert by_rank(text) == [["broadcast", "all_reduce"]] + 3 * [["barrier", "all_reduce"]]


def test_what_a_function_does_is_part_of_its_callers_path() -> None:
    text = "def a():\n    dist.barrier()\ndef b():\n    a()\nb()\n"
    made = module(text)
    assert set(reaching_a_collective(made)) == {"a", "b"}
    assert by_rank(text) == 4 * [["barrier"]]


def test_nothing_follows_a_way_out() -> None:
    assert by_rank("if rank == 1:\n    sys.exit()\ndist.barrier()\n") == [
        ["barrier"],
        [],
        ["barrier"],
        ["barrier"],
    ]
