"""Copies with non_blocking=True whose memory is used too early."""

from __future__ import annotations

import pytest

from preflight.domains.script.async_copies import copy_not_awaited
from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module

COPY = "y = x.to('cpu', non_blocking=True)\n"


def hits(text: str) -> list[int]:
    head = "import torch\nimport numpy as np\n"
    program = Program((parse_module((head + text).encode(), "train.py"),), ())
    return [hit.line for hit in copy_not_awaited(program, mentions(program.modules))]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (COPY + "print(y)", 1),
        (COPY + "z = y[0].float().numpy()", 1),
        (COPY + "z = np.mean(y)", 1),
        ("y = x.detach().to(torch.device('cpu'), non_blocking=True)\na = float(y)", 1),
        (COPY + "torch.cuda.synchronize()\nprint(y)", 0),
        (COPY + "done.wait()\nprint(y)", 0),
        (COPY + "a = loss.item()\nprint(y)", 0),
        (COPY + "y = other\nprint(y)", 0),
        (COPY + "save(y)", 0),
        ("y = x.to('cpu')\nprint(y)", 0),
        ("y = x.to('cuda', non_blocking=True)\nprint(y)", 0),
        ("y = x.to('cpu', non_blocking=waits)\nprint(y)", 0),
        (COPY + "print(x)", 0),
    ],
)
def test_what_is_copied_to_the_cpu(text: str, count: int) -> None:
    assert len(hits(text)) == count


STAGE = """
class Stage:
  def __init__(self):
    self.buffer = torch.empty(8, pin_memory=True)
    {made}
  def next(self, rows):
    {first}
    {fill}
    return {sent}
"""
USUAL = {"made": "self.n = 0", "first": "self.n += 1", "fill": "self.buffer.copy_(rows)"}
USUAL["sent"] = "self.buffer.to('cuda', non_blocking=True)"


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 1),
        ({"fill": "torch.index_select(self.x, 0, rows, out=self.buffer)"}, 1),
        ({"fill": "self.buffer[:4] = rows", "sent": "self.buffer[:4].cuda(non_blocking=True)"}, 1),
        ({"sent": "gpu.copy_(self.buffer, non_blocking=True)"}, 1),
        ({"first": "self.copied.synchronize()"}, 0),
        ({"made": "self.copied = torch.cuda.Event()"}, 0),
        ({"sent": "self.buffer.to('cuda')"}, 0),
        ({"fill": "pass"}, 0),
        ({"made": "self.buffer = [torch.empty(8)]", "fill": "self.buffer[k].copy_(rows)"}, 0),
        ({"fill": "self.buffer = rows.pin_memory()"}, 0),
    ],
)
def test_a_buffer_that_is_filled_again(changes: dict[str, str], count: int) -> None:
    assert len(hits(STAGE.format(**(USUAL | changes)))) == count


LOOP = """
def main():
  stage = torch.empty(8).pin_memory()
  for rows in loader:
    stage.copy_(rows)
    x = stage.to(device, non_blocking=True)
    loss = model(x)
    {end}
"""


@pytest.mark.parametrize(
    ("end", "count"),
    [
        ("loss.backward()", 1),
        ("print(loss.item())", 0),
        ("torch.cuda.current_stream().synchronize()", 0),
        ("stage = torch.empty(8).pin_memory()", 1),
    ],
)
def test_a_buffer_of_a_loop(end: str, count: int) -> None:
    assert len(hits(LOOP.format(end=end))) == count


def test_a_step_that_reads_its_loss_waits_for_all_copies() -> None:
    steps = (
        "def train(model, optimizer, loader):\n  for rows in loader:\n"
        "    loss = model(rows)\n    loss.backward()\n    optimizer.step()\n"
    )
    assert len(hits(STAGE.format(**USUAL) + steps)) == 1
    assert hits(STAGE.format(**USUAL) + steps + "    total += loss.item()\n") == []
