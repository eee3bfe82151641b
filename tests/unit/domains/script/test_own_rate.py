"""Learning rates that ranks set for themselves."""

from __future__ import annotations

import pytest

from preflight.domains.script.own_rate import rate_per_rank
from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module

HEAD = (
    "import torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "from torch.utils.data import DistributedSampler\nfrom torch.optim import lr_scheduler\n"
    "model = DDP(net)\nsampler = DistributedSampler(data)\n"
    "scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)\n"
)
TRAIN = (
    "for epoch in range(9):\n  total = 0.0\n  for x in loader:\n    loss = model(x)\n"
    "    loss.backward()\n    optimizer.step()\n    total += loss.item()\n"
)
PLATEAU = TRAIN + "  scheduler.step(total / len(loader))\n"
FUNCTION = (
    "def train(m):\n  for x in loader:\n    loss = m(x)\n    loss.backward()\n  return loss\n"
    "for epoch in range(9):\n  loss = train(model)\n  scheduler.step(loss)\n"
)
VALIDATES = "val = DistributedSampler(other)\n" + PLATEAU.replace(
    "total / len(loader)", "validate(model)"
)
ON_FIRST = TRAIN + "  if dist.get_rank() == 0:\n    scheduler.step(validate(model))\n"


def others(text: str, head: str = HEAD) -> list[str]:
    whole = Program((parse_module((head + text).encode(), "train.py"),), ())
    return [hit.other for hit in rate_per_rank(whole, mentions(whole.modules))]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PLATEAU, "ReduceLROnPlateau by loss"),
        (PLATEAU.replace("total / len(loader)", "loss.item()"), "ReduceLROnPlateau by loss"),
        (PLATEAU.replace("  scheduler", "  mean = total / 9\n  scheduler"), "ReduceLROnPlateau by"),
        (FUNCTION, "ReduceLROnPlateau by train()"),
        # a sum of something else, and a barrier, tell nobody the loss
        (PLATEAU.replace("  sched", "  dist.all_reduce(hits)\n  sched"), "ReduceLROnPlateau by"),
        (PLATEAU.replace("  sched", "  dist.barrier()\n  sched"), "ReduceLROnPlateau by"),
        # the data of evaluation is shared out as well, and nothing is ever summed
        (VALIDATES, "ReduceLROnPlateau by validate(model) of"),
        (ON_FIRST, "only under 'if dist.get_rank() == 0'"),
        (ON_FIRST.replace("scheduler.", "warm.") + "warm = lr_scheduler.StepLR(o, 3)\n", "only"),
    ],
)
def test_a_rank_sets_its_own(text: str, why: str) -> None:
    (other,) = others(text)
    assert other.startswith(why)


@pytest.mark.parametrize(
    "text",
    [
        PLATEAU.replace("  sched", "  total = sum_of_all(total)\n  sched"),
        PLATEAU.replace("  sched", "  to_mean_(total)\n  sched"),
        PLATEAU.replace("  sched", "  dist.all_reduce(total)\n  sched"),
        PLATEAU.replace("  sched", "  dist.broadcast(total, 0)\n  sched"),
        PLATEAU.replace("step(total / len(loader))", "step(reduce_mean(total))"),
        FUNCTION.replace("  return loss", "  dist.all_reduce(loss)\n  return loss"),
        # what another package, or a metric that knows ranks, has worked out
        PLATEAU.replace("total / len(loader)", "validate(model)"),
        PLATEAU.replace("total / len(loader)", "metric.compute()"),
        "import torchmetrics\n" + VALIDATES,
        VALIDATES + "dist.all_reduce(other)\n",
        # no plateau, by the number of steps
        PLATEAU.replace("scheduler.step(total / len(loader))", "cosine.step()")
        + "cosine = lr_scheduler.CosineAnnealingLR(o, 3)\n",
        # bound to something else as well
        PLATEAU + "scheduler = other(optimizer)\n",
        # rank 0 decides and tells the others
        ON_FIRST + "  dist.broadcast(rate, 0)\n",
        ON_FIRST.replace("dist.get_rank() == 0", "epoch > 3"),
        ON_FIRST.replace("scheduler.step(validate(model))", "writer.step()"),
        ON_FIRST + "  else:\n    scheduler.step(received)\n",
        "import accelerate\n" + PLATEAU,
    ],
)
def test_all_ranks_have_one_or_it_can_not_be_told(text: str) -> None:
    assert others(text) == []


def test_without_shares_all_have_the_same_loss() -> None:
    assert others(PLATEAU, HEAD.replace("DistributedSampler(data)", "None")) == []
    assert others(PLATEAU, HEAD.replace("DDP(net)", "net")) == []
