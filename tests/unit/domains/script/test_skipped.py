"""Batches that one rank leaves out before the backward() of all."""

from __future__ import annotations

import pytest

from preflight.domains.script.rules import mentions
from preflight.domains.script.skipped import batch_skipped
from preflight.domains.script.source import Program, parse_module

HEAD = "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n"
LOOP = (
    "for i, batch in enumerate(loader):\n  loss = model(batch)\n  if {test}:\n    {leaves}\n"
    "  loss.backward()\n"
)


def count(text: str) -> int:
    made = Program((parse_module(text.encode(), "train.py"),), ())
    return len(list(batch_skipped(made, mentions(made.modules))))


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("torch.isnan(loss)", 1),
        ("not math.isfinite(loss.item())", 1),
        ("batch is None", 1),
        ("len(batch) == 0", 1),
        ("not batch.mask.any()", 1),
        ("i < start", 0),
        ("i == 0", 0),
        ("len(loader) == 0", 0),
        ("batch is not None", 0),
    ],
)
def test_a_test_of_the_data_parts_the_ranks(test: str, found: int) -> None:
    assert count(HEAD + LOOP.format(test=test, leaves="continue")) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HEAD + LOOP.format(test="torch.isnan(loss)", leaves="break"), 1),
        (HEAD + LOOP.format(test="torch.isnan(loss)", leaves="raise ValueError"), 0),
        (HEAD + LOOP.format(test="torch.isnan(loss)", leaves="loss = loss * 0"), 0),
        (HEAD.replace("DDP(net)", "net") + LOOP.format(test="batch is None", leaves="continue"), 0),
        ("import accelerate\n" + HEAD + LOOP.format(test="batch is None", leaves="continue"), 0),
        (
            HEAD
            + LOOP.format(test="torch.isnan(loss)", leaves="continue")
            + "  agree_by_reduce()\n",
            0,
        ),
        (
            HEAD + "def same(x):\n  return dist.all_reduce(x)\n"
            "for batch in loader:\n  bad = same(isnan(model(batch)))\n  if bad.sum() == 0:\n"
            "    continue\n  loss.backward()\n",
            0,
        ),
    ],
)
def test_what_all_ranks_do_is_right(text: str, found: int) -> None:
    assert count(text) == found
