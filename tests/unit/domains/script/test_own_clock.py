"""Ranks that leave a training loop by their own clocks."""

from __future__ import annotations

import pytest

from preflight.domains.script.own_clock import stops_by_own_clock
from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module

HEAD = (
    "import datetime\nimport time\nimport torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n"
)
STEP = "  loss = model(x)\n  loss.backward()\n  optimizer.step()\n"
DIRECT = (
    "began = time.time()\nfor x in loader:\n"
    + STEP
    + "  if time.time() - began > budget:\n    break\n"
)
NAMED = (
    "for x in loader:\n"
    + STEP
    + "  elapsed = time.perf_counter() - began\n  if step > 9 and elapsed >= limit:\n    break\n"
)
FLAG = (
    "stop = False\nfor x in loader:\n"
    + STEP
    + "  if time.monotonic() > deadline:\n    stop = True\n  if stop:\n    break\n"
)
WHILE = "while time.monotonic() < deadline:\n" + STEP
CALLED = (
    "def time_is_up():\n  return time.time() - began > 3600\nfor x in loader:\n"
    + STEP
    + "  if time_is_up():\n    break\n"
)
DATES = (
    "while True:\n"
    + STEP
    + "  if (datetime.datetime.now() - began).total_seconds() > 60:\n    break\n"
)
EPOCHS = (
    "def train(m):\n  for x in loader:\n    m(x).backward()\n"
    "for epoch in range(9):\n  train(model)\n  if time.time() > deadline:\n    break\n"
)


def hits(text: str) -> list[tuple[int, str]]:
    whole = Program((parse_module((HEAD + text).encode(), "train.py"),), ())
    return [(h.line, h.other) for h in stops_by_own_clock(whole, mentions(whole.modules))]


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        (DIRECT, "time.time"),
        (NAMED, "time.perf_counter"),
        (FLAG, "time.monotonic"),
        (WHILE, "time.monotonic"),
        (CALLED, "time.time"),
        (DATES, "datetime.datetime.now"),
        (EPOCHS, "time.time"),
        ("from time import time as now\n" + DIRECT.replace("time.time()", "now()"), "time.time"),
        # a sum of something else tells nobody the time
        (DIRECT.replace("  if time", "  dist.all_reduce(loss)\n  if time"), "time.time"),
        (NAMED.replace("  if step", "  print(elapsed)\n  if step"), "time.perf_counter"),
    ],
)
def test_a_clock_of_each_rank_ends_the_training(text: str, clock: str) -> None:
    ((line, why),) = hits(text)
    lines = (HEAD + text).splitlines()
    assert "break" in lines[line - 1] or lines[line - 1].startswith("while time")
    assert why == f"each rank asks its own {clock}()"


TOLD = "  over = torch.tensor(time.time() > deadline)\n  dist.broadcast(over, 0)\n  if over:\n"


@pytest.mark.parametrize(
    "text",
    [
        "for x in loader:\n" + STEP + TOLD + "    break\n",
        "for x in loader:\n"
        + STEP
        + TOLD.replace("dist.broadcast(over, 0)", "utils.tell(over)")
        + "    break\n",
        FLAG.replace("  if stop:", "  stop = any_rank(stop)\n  if stop:"),
        CALLED.replace("  return time", "  dist.barrier()\n  return time"),
        # the time of a step is told, not asked
        DIRECT.replace("time.time() - began > budget", "step > limit"),
        NAMED.replace("elapsed >= limit", "loss < limit"),
        # a batch that took long is told of, and nothing ends
        DIRECT.replace("break", "print('slow')"),
        # one rank alone, and other loops than that of training
        DIRECT.replace("if time.time()", "if world_size == 1 and time.time()"),
        DIRECT.replace("  loss.backward()\n", ""),
        WHILE.replace("  loss.backward()\n", ""),
        "import accelerate\n" + DIRECT,
        # DDP's own way for ranks with different numbers of steps
        "from torch.distributed.algorithms.join import Join\n" + DIRECT,
        "with model.join():\n " + DIRECT.replace("\n", "\n ").rstrip(" "),
        # the deadline was agreed on, but only a step number decides
        "last = steps_until(time.time())\nfor x in loader:\n"
        + STEP
        + "  if step >= last:\n    break\n",
    ],
)
def test_ranks_that_agree_or_need_not(text: str) -> None:
    assert hits(text) == []


def test_without_ddp_nobody_waits() -> None:
    text = HEAD.replace("DDP(net)", "net") + DIRECT
    whole = Program((parse_module(text.encode(), "train.py"),), ())
    assert list(stops_by_own_clock(whole, mentions(whole.modules))) == []
