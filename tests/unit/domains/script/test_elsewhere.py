"""Collectives behind the name of a function."""

from __future__ import annotations

import pytest

from preflight.domains.script.elsewhere import certain_functions, collective_elsewhere
from preflight.domains.script.source import Program, parse_module

HEAD = "import torch.distributed as dist\n"


def program(text: str) -> Program:
    return Program((parse_module((HEAD + text).encode(), "train.py"),), ())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f():\n  dist.barrier()\n", {"f"}),
        ("def f():\n  dist.barrier()\ndef g():\n  f()\n", {"f", "g"}),
        ("def f():\n  if log:\n    dist.barrier()\n", set()),
        ("def f():\n  if not dist.is_initialized():\n    return\n  dist.barrier()\n", {"f"}),
        ("class A:\n  def f(self):\n    dist.barrier()\n", {"f"}),
        # a library's function of that name
        (
            "import torch\nclass A:\n  def save(self):\n    dist.barrier()\n"
            "def dump(x):\n  torch.save(x, 'x')\n",
            {"save"},
        ),
        # one of two does not
        (
            "class A:\n  def f(self):\n    dist.barrier()\nclass B:\n  def f(self):\n    pass\n",
            set(),
        ),
        # the other one calls it
        (
            "class A:\n  def f(self):\n    dist.barrier()\n"
            "class B:\n  def f(self):\n    self.a.f()\n",
            {"f"},
        ),
    ],
)
def test_a_name_that_surely_gets_there(text: str, names: set[str]) -> None:
    assert set(certain_functions(program(text))) == names


METER = "class Meter:\n  def sync(self):\n    dist.all_reduce(self.total)\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("if dist.get_rank() == 0:\n  meter.sync()\n", [6]),
        ("if dist.get_rank() == 0:\n  print()\nmeter.sync()\n", []),
        ("if dist.get_rank() == 0:\n  meter.sync()\nif dist.get_rank() > 0:\n  meter.sync()\n", []),
        ("if dist.get_rank() == 0:\n  meter.sync()\nelse:\n  other()\n", []),
        ("import wandb\nif dist.get_rank() == 0:\n  wandb.sync()\n", []),
    ],
)
def test_a_method_is_not_for_all(text: str, lines: list[int]) -> None:
    assert [hit.line for hit in collective_elsewhere(program(METER + text))] == lines
