"""Works that nobody waits for, accumulation without no_sync, scalers for bfloat16."""

from __future__ import annotations

import pytest

from preflight.domains.script.rules import (
    mentions,
    no_sync_missing,
    not_waited,
    scaler_with_bf16,
)
from preflight.domains.script.source import Program, parse_module

HEAD = (
    "import torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(model)\n"
)


def program(text: str) -> Program:
    return Program((parse_module((HEAD + text).encode(), "train.py"),), ())


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("dist.all_reduce(x, async_op=True)\n", ["its Work is dropped"]),
        ("w = dist.all_reduce(x, async_op=True)\n", ["w is never waited for"]),
        ("w = dist.all_reduce(x, async_op=True)\nw.wait()\n", []),
        ("_ = dist.all_reduce(x, async_op=True)\n", []),
        ("ws = []\nws.append(dist.all_reduce(x, async_op=True))\n", ["ws is never waited for"]),
        ("ws = []\nws.append(dist.all_reduce(x, async_op=True))\nfinish(ws)\n", []),
        ("dist.all_reduce(x, async_op=True)\ntorch.cuda.synchronize()\n", []),
        ("for x in xs:\n  dist.broadcast(x, 0, async_op=True)\ndist.barrier()\n", []),
        ("dist.barrier()\ndist.all_reduce(x, async_op=True)\n", ["its Work is dropped"]),
        ("dist.all_reduce(x, async_op=False)\n", []),
    ],
)
def test_a_work_must_be_waited_for(text: str, other: list[str]) -> None:
    assert [hit.other for hit in not_waited(program(text))] == other


ACCUMULATES = (
    "for i, batch in enumerate(data):\n    loss = model(batch) / n\n    loss.backward()\n"
    "    if (i + 1) % n == 0:\n        optimizer.step()\n"
)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (ACCUMULATES, [7]),
        (ACCUMULATES.replace("/ n", "/ other"), []),
        (ACCUMULATES.replace("% n", "% 1").replace("/ n", "/ 1"), []),
        (ACCUMULATES + "with model.no_sync():\n    pass\n", []),
        ("import accelerate\n" + ACCUMULATES, []),
    ],
)
def test_accumulation_sums_gradients_once(text: str, lines: list[int]) -> None:
    made = program(text)
    assert [hit.line for hit in no_sync_missing(made, mentions(made.modules))] == lines


SCALES = (
    "scaler = torch.amp.GradScaler()\nwith torch.autocast('cuda', dtype=torch.bfloat16):\n"
    "    loss = model(x)\nscaler.scale(loss).backward()\n"
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (SCALES, 1),
        (SCALES.replace("bfloat16", "float16"), 0),
        (SCALES.replace("GradScaler()", "GradScaler(enabled=args.fp16)"), 0),
        (SCALES.replace("scaler.scale(loss)", "loss"), 0),
        ("if args.amp:\n    " + SCALES.partition("\n")[0] + "\n" + SCALES.partition("\n")[2], 1),
        ("if args.fp16:\n    " + SCALES.partition("\n")[0] + "\n" + SCALES.partition("\n")[2], 0),
        (SCALES.replace("GradScaler()", "GradScaler(enabled=args.amp)"), 1),
        (SCALES.replace("GradScaler()", "GradScaler(enabled=use_scaler)"), 0),
        ("use = dtype == 'x'\n" + SCALES.replace("GradScaler()", "GradScaler(enabled=use)"), 0),
    ],
)
def test_bfloat16_needs_no_scaler(text: str, count: int) -> None:
    assert len(list(scaler_with_bf16(program(text)))) == count
