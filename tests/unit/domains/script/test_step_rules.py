"""Gradients reset, clipped or scaled at the wrong time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Hit, Program, parse_module
from preflight.domains.script.step_rules import (
    accumulation_reset,
    apex_amp,
    clip_scaled,
    waits_each_step,
)

Rule = Callable[..., Iterator[Hit]]


def lines(rule: Rule, text: str) -> list[int]:
    made = Program((parse_module(text.encode(), "train.py"),), ())
    given = (made,) if rule is apex_amp else (made, mentions(made.modules))
    return [hit.line for hit in rule(*given)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "for idx, b in enumerate(dl):\n  optim.zero_grad()\n  m(b).backward()\n"
            "  if not (idx + 1) % cfg.accumulate_steps:\n    optim.step()\n",
            [2],
        ),
        (
            "while it < total:\n  self.optimizer_g.zero_grad()\n  loss(next(s)).backward()\n"
            "  it += 1\n  if it % k == 0:\n    self.optimizer_g.step()\n",
            [2],
        ),
        (  # the step is made in every batch: no accumulation
            "for i, b in enumerate(dl):\n  opt.zero_grad()\n  m(b).backward()\n  opt.step()\n"
            "  if i % 5 == 0:\n    opt.step()\n",
            [],
        ),
        (  # a schedule and a log under the same test
            "for i, b in enumerate(dl):\n  opt.zero_grad()\n  m(b).backward()\n  opt.step()\n"
            "  if i % 5 == 0:\n    sched.step()\n    log(i)\n",
            [],
        ),
        (  # the last one is reset under a test of its own
            "for i, b in enumerate(dl):\n  if i % n == 0:\n    opt.zero_grad()\n  m(b).backward()\n"
            "  if (i + 1) % n == 0:\n    opt.step()\n",
            [],
        ),
        (  # an inner loop over the tasks, each with an optimizer of its own
            "for b in dl:\n  for o in os:\n    o.zero_grad()\n    m(b).backward()\n    o.step()\n",
            [],
        ),
        (  # what is summed by hand in between
            "for _ in range(9):\n  grads = []\n  for t in tasks:\n    model.zero_grad()\n"
            "    m(t).backward()\n    grads.append([p.grad for p in ps])\n  apply(grads)\n",
            [],
        ),
        (  # MAML, PCGrad and the like keep what was there before they reset
            "for _ in range(9):\n  for t in tasks:\n    opt.zero_grad()\n    m(t).backward()\n"
            "    keep([p.grad.clone() for p in ps])\n  merge()\n  opt.step()\n",
            [],
        ),
    ],
)
def test_gradients_are_kept_until_they_are_used(text: str, found: list[int]) -> None:
    assert lines(accumulation_reset, text) == found


SCALER = "from torch.cuda.amp import GradScaler\nscaler = GradScaler()\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            SCALER + "def f():\n  scaler.scale(l).backward()\n  nn.utils.clip_grad_norm_(p, 1)\n"
            "  scaler.step(o)\n",
            [5],
        ),
        (
            SCALER + "for b in d:\n  scaler.scale(m(b)).backward()\n  if i % n == 0:\n"
            "    clip_grad_norm_(p, 1)\n    scaler.step(o)\n",
            [],  # another depth of loops is the same: see the next one
        ),
        (
            SCALER + "def f():\n  loss.backward()\n  clip_grad_norm_(p, 1)\n  o.step()\n",
            [],
        ),
        (
            SCALER.replace("()", "(enabled=False)")
            + "scaler.scale(l).backward()\nclip_grad_norm_(p, 1)\nscaler.step(o)\n",
            [],
        ),
        (
            SCALER + "scaler.scale(l).backward()\nscaler.unscale_(o)\nclip_grad_norm_(p, 1)\n"
            "scaler.step(o)\n",
            [],
        ),
        (  # clipped after the step: of no use, but not this
            SCALER + "scaler.scale(l).backward()\nscaler.step(o)\nclip_grad_norm_(p, 1)\n",
            [],
        ),
        (  # two halves of a class, and nobody anywhere who divides
            SCALER + "def a():\n  scaler.scale(l).backward()\ndef b():\n  clip_grad_norm_(p, 1)\n"
            "  scaler.step(o)\n",
            [6],
        ),
        (
            SCALER + "def a():\n  scaler.scale(l).backward()\n  scaler.unscale_(o)\n"
            "def b():\n  clip_grad_norm_(p, 1)\n  scaler.step(o)\n",
            [],
        ),
    ],
)
def test_gradients_are_clipped_in_their_own_size(text: str, found: list[int]) -> None:
    assert lines(clip_scaled, text) == (found or lines_of_clip(text))


def lines_of_clip(text: str) -> list[int]:
    """Of the one case that is a fault under a test."""
    if "if i % n == 0" not in text:
        return []
    return [n for n, line in enumerate(text.splitlines(), 1) if "clip_grad" in line]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import apex.amp as amp\nm, o = amp.initialize(m, o)\n", [2]),
        ("from apex.amp import initialize\nm, o = initialize(m, o)\n", [2]),
        ("if args.amp:\n  from apex import amp\n  m, o = amp.initialize(m, o)\n", []),
        ("from torch.cuda import amp\namp.initialize(m, o)\n", []),
        ("from apex import amp\n", []),
        ("from .apex import amp\namp.initialize(m)\n", []),
    ],
)
def test_apex(text: str, found: list[int]) -> None:
    assert lines(apex_amp, text) == found


CUDA = "model.cuda()\n"
STEP = "  loss.backward()\n  opt.step()\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{CUDA}for b in dl:\n  loss = f(b)\n{STEP}  total += loss.item()\n", [6]),
        (f"{CUDA}for b in dl:\n  loss = f(b)\n{STEP}  losses.append(loss.detach().cpu())\n", [6]),
        (f"{CUDA}for b in dl:\n  loss = f(b)\n{STEP}  bar.set_postfix(l=float(loss))\n", [6]),
        (f"{CUDA}for b in dl:\n  loss = f(b)\n{STEP}  print('loss', loss)\n", [6]),
        (f"{CUDA}for b in dl:\n  loss = f(b)\n{STEP}  print(f'{{loss.item():.3f}}')\n", [6]),
        (f"{CUDA}for b in dl:\n  loss = f(b)\n{STEP}  torch.cuda.synchronize()\n", [6]),
        (
            "dev = torch.device('cuda:0')\nfor b in dl:\n  with autocast():\n    loss = f(b)\n"
            "  scaler.scale(loss).backward()\n  scaler.step(opt)\n  n += loss.item()\n",
            [7],
        ),
        # every 100 steps
        (
            f"{CUDA}for i, b in enumerate(dl):\n{STEP}  if i % 100 == 0:\n    print(loss.item())\n",
            [],
        ),
        (f"{CUDA}for i, b in enumerate(dl):\n{STEP}  l = loss.item() if i % 9 == 0 else l\n", []),
        # after the loop, and in an evaluation
        (f"{CUDA}for b in dl:\n{STEP}print(loss.item())\n", []),
        (f"{CUDA}for b in dl:\n  loss = f(b)\n  total += loss.item()\n", []),
        # another tensor, which may be on the CPU
        (f"{CUDA}for b in dl:\n{STEP}  seen += lengths.item()\n", []),
        (f"{CUDA}for b in dl:\n{STEP}  print('step')\n", []),
        # no GPU: nothing is waited for
        (f"for b in dl:\n{STEP}  total += loss.item()\n", []),
    ],
)
def test_what_waits_for_the_gpu_in_every_step(text: str, found: list[int]) -> None:
    assert lines(waits_each_step, text) == found
