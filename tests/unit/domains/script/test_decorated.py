"""Collectives under a decorator for one rank."""

from __future__ import annotations

import pytest

from preflight.domains.script.decorated import collective_decorated
from preflight.domains.script.source import Program, parse_module

HEAD = (
    "import torch.distributed as dist\nfrom accelerate import Accelerator\n"
    "from lightning.pytorch.utilities import rank_zero_only\naccelerator = Accelerator()\n"
)
GATHERS = "@accelerator.on_main_process\ndef report(loss):\n  total = accelerator.gather(loss)\n"
LOGS = "class M:\n  @rank_zero_only\n  def on_end(self):\n    self.log('a', 1, sync_dist=True)\n"
OWN = (
    "def only(func):\n  def inner(*args):\n    if dist.get_rank() == 0:\n"
    "      return func(*args)\n  return inner\n@only\ndef save(x):\n  dist.barrier()\n"
)
BY_NAME = "def mean(x):\n  dist.all_reduce(x)\n@rank_zero_only\ndef show(x):\n  mean(x)\n"


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (GATHERS, "gather under @on_main_process"),
        (GATHERS.replace("on_main", "on_local_main"), "gather under @on_local_main_process"),
        (GATHERS.replace("gather(loss)", "wait_for_everyone()"), "wait_for_everyone under"),
        (GATHERS.replace("gather(", "reduce("), "reduce under"),
        (LOGS, "log(sync_dist=True) under @rank_zero_only"),
        (OWN, "barrier under @only"),
        (BY_NAME, "mean under @rank_zero_only"),
        (OWN + "if dist.get_rank() != 0:\n  dist.all_reduce(x)\n", "barrier under"),
    ],
)
def test_one_rank_alone_calls_it(text: str, other: str) -> None:
    module = parse_module((HEAD + text).encode(), "train.py")
    (hit,) = collective_decorated(Program((module,), ()))
    assert hit.rule == "collective-under-rank"
    assert hit.other.startswith(other)


@pytest.mark.parametrize(
    "text",
    [
        # what is gathered before, and by all
        GATHERS.replace("accelerator.gather(loss)", "loss.mean()")
        + "report(accelerator.gather(x))",
        GATHERS.replace("@accelerator.on_main_process\n", ""),
        # a decorator for each rank of a kind, or one that says nothing of ranks
        GATHERS.replace("on_main_process", "on_process"),
        GATHERS.replace("@accelerator.on_main_process", "@torch.no_grad()"),
        LOGS.replace(", sync_dist=True", ", rank_zero_only=True"),
        LOGS.replace(", sync_dist=True", ""),
        OWN.replace("    if dist.get_rank() == 0:\n  ", "    if True:\n  "),
        # the other half of a meeting
        OWN + "if dist.get_rank() != 0:\n  dist.barrier()\n",
        # a group of its own, and a job of one rank
        OWN.replace("barrier()", "barrier(group=mine)"),
        OWN.replace("  dist.barrier()", "  if dist.get_world_size() == 1:\n    dist.barrier()"),
        # a function that does nothing but for the first one
        BY_NAME.replace("def mean", "@rank_zero_only\ndef mean").replace(
            "dist.all_reduce", "print"
        ),
    ],
)
def test_all_ranks_or_none_do(text: str) -> None:
    module = parse_module((HEAD + text).encode(), "train.py")
    assert list(collective_decorated(Program((module,), ()))) == []
