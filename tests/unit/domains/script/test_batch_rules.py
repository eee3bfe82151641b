"""Batches that stay on the CPU."""

from __future__ import annotations

import pytest

from preflight.domains.script.batch_rules import batch_not_moved
from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module

DDP = (
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "from torch.utils.data import DataLoader\nimport torch\nimport torch.nn.functional as F\n"
)
LEFT = "model = DDP(net)\nfor x, y in a:\n  {}\n  p = model(x)\n  l = {}\n  l.backward()\n"
PART = (
    "model = DDP(net)\nfor b in a:\n  x = b['x'].to(d)\n  y = {}\n  p = model(x)\n"
    "  l = F.cross_entropy(p, y)\n  l.backward()\n"
)
UNPACKED = (
    "model = DDP(net)\nfor b in a:\n  x, y = b\n  {}\n  p = model(x)\n"
    "  l = F.cross_entropy(p, y)\n  l.backward()\n"
)
HANDED = (
    "model = DDP(net)\ndef step(s, t):\n  {}\n  F.cross_entropy(model(s), t).backward()\n"
    "for x, y in a:\n  x = x.to(d)\n  step(x, y)\n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "net.to(device='cuda')\nnet = net.cuda()\nmodel = DDP(net)\n"
            "for b in DataLoader(d):\n  model(b).sum().backward()\n",
            [9],
        ),
        (
            "model = DDP(net.cuda(), device_ids=[r], output_device=r)\n"
            "for i, (x, y) in enumerate(DataLoader(d), 1):\n  p = model(x)\n"
            "  l = F.cross_entropy(p, y)\n",
            [8],
        ),
        ("model = DDP(net)\nfor b in DataLoader(d):\n  model(b)\n", []),
        ("model = DDP(net.cuda())\nfor b in stream():\n  model(b)\n", []),
        ("model = DDP(net.cuda())\nfor b in DataLoader(d):\n  b = prepare(b)\n  model(b)\n", []),
        ("model = DDP(net.cuda())\nfor b in DataLoader(d):\n  model(b['x'].cuda())\n", []),
        ("model = DDP(net.cuda())\nfor b in DataLoader(d):\n  model(**b)\n", []),
        (
            "model = DDP(net.cuda(), device_ids=[r])\nfor x, y in DataLoader(d):\n"
            "  p = model(x).cpu()\n  l = F.mse_loss(p.cpu(), y)\n",
            [],
        ),
        # a statement that keeps nothing
        (LEFT.format("y.to(d)", "F.cross_entropy(p, y)"), [7]),
        (LEFT.format("y = y.to(d)", "F.cross_entropy(p, y)"), []),
        (LEFT.format("y.to(d)", "len(y)"), []),
        (LEFT.replace("x, y in", "y in").format("y.to(d)", "F.cross_entropy(p, y)"), []),
        # a part of a batch
        (PART.format("b['y']"), [10]),
        (PART.format("b['y'].to(d)"), []),
        (PART.format("take(b['y'])"), []),
        (PART.replace("b['x'].to(d)", "b['x']").format("b['y']"), []),
        (UNPACKED.format("x = x.to(d)"), [10]),
        (UNPACKED.format("x, y = x.to(d), y.to(d)"), []),
        (UNPACKED.replace("(p, y)", "(model(x), y)").format("x = x.to(d)"), [10]),
        (UNPACKED.format("x = x.to(device=d)"), [10]),
        # another type and no other place: where the loader has both is not in sight
        (UNPACKED.format("x = x.to(torch.bfloat16)"), []),
        (UNPACKED.format("x = x.to(dtype)"), []),
        (UNPACKED.format("x = x.to(d, torch.bfloat16)"), [10]),
        (PART.replace("b['x'].to(d)", "b['x'].to(torch.float)").format("b['y']"), []),
        ("for x, y in a:\n  y.to(torch.long)\n  p = DDP(n)(x)\n  loss(p, y).backward()\n", []),
        ("for x, y in a:\n  y.to(d)\n  p = DDP(n)(x)\n  loss(p, y).backward()\n", [6]),
        # what another function does with it
        (HANDED.format("pass"), [11]),
        (HANDED.format("t = t.to(d)"), []),
        ("import accelerate\nmodel = DDP(net.cuda())\nfor b in DataLoader(d):\n  model(b)\n", []),
    ],
)
def test_batches_are_where_the_model_is(text: str, found: list[int]) -> None:
    made = Program((parse_module((DDP + text).encode(), "train.py"),), ())
    assert [hit.line for hit in batch_not_moved(made, mentions(made.modules))] == found
