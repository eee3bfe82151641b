"""Ranks that leave a training loop by themselves."""

from __future__ import annotations

import pytest

from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module
from preflight.domains.script.stop_rules import early_stop_per_rank

HEAD = (
    "import torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
)


def program(text: str) -> Program:
    return Program((parse_module((HEAD + text).encode(), "train.py"),), ())


STOP = (
    "from torch.utils.data import DistributedSampler\n"
    "model = DDP(net)\na = DistributedSampler(x)\nb = DistributedSampler(y)\n"
    "for epoch in range(9):\n  a.set_epoch(epoch)\n  loss = val(model)\n"
    "  if loss > best:\n    wait += 1\n  if wait >= 3:\n    break\n"
)
VAL = "def val(m):\n  return m(1)\n"
FLAG = (
    "model = DDP(net)\nstop = False\nfor epoch in range(9):\n  model(x).backward()\n"
    "  if rank == 0:\n    if loss > best:\n      stop = True\n  if stop:\n    break\n"
)
LOW = (
    "from torch.utils.data import DistributedSampler\nmodel = DDP(net)\n"
    "a = DistributedSampler(x)\nfor step in range(99):\n  loss = model(x)\n  loss.backward()\n"
    "  optimizer.step()\n  if loss < 0.1:\n    break\n"
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (STOP, 1),
        (STOP.replace("wait >= 3", "es.early_stop"), 1),
        (STOP.replace("wait >= 3", "step > max_steps"), 0),
        (STOP.replace("b = DistributedSampler(y)", ""), 0),
        (STOP.replace("val(model)", "mean_all_reduced(val(model))"), 0),
        (STOP.replace("DDP(net)", "net"), 0),
        (STOP.replace("wait >= 3", "rank == 0 and done"), 1),
        ("import accelerate\n" + STOP, 0),
        (STOP + "model.no_sync()\n", 1),
        # a barrier tells nobody anything
        (STOP.replace("  if loss", "  dist.barrier()\n  if loss", 1) + VAL, 1),
        (STOP.replace("  if loss", "  dist.all_reduce(loss)\n  if loss", 1) + VAL, 0),
        (STOP.replace("  if loss", "  dist.all_reduce(other)\n  if loss", 1) + VAL, 1),
        # a flag of one rank
        (FLAG, 1),
        (FLAG.replace("if stop:", "if halt:"), 0),
        (
            FLAG.replace(
                "  if stop:", "  box = [stop]\n  dist.broadcast_object_list(box)\n  if stop:"
            ),
            0,
        ),
        (FLAG.replace("  if stop:", "  dist.barrier()\n  if stop:"), 1),
        (FLAG.replace("  if stop:", "  if rank:\n    stop = told()\n  if stop:"), 0),
        (FLAG.replace("  if stop:", "  stop = told(stop)\n  if stop:"), 0),
        (FLAG.replace("rank == 0", "epoch > 3"), 0),
        (
            FLAG.replace("      stop = True", "      stopper(loss)").replace(
                "if stop:", "if stopper.on:"
            ),
            1,
        ),
        (
            FLAG.replace(
                "if stop:\n    break", "if dist.get_world_size() == 1:\n    if stop:\n      break"
            ),
            0,
        ),
        # the loss of the training
        (LOW, 1),
        (LOW.replace("if loss < 0.1", "if loss == 0.1"), 0),
        (LOW.replace("  if loss <", "  dist.all_reduce(loss)\n  if loss <"), 0),
        (LOW.replace("if loss < 0.1", "if step > 10"), 0),
    ],
)
def test_all_stop_together(text: str, count: int) -> None:
    made = program(text)
    assert len(list(early_stop_per_rank(made, mentions(made.modules)))) == count
