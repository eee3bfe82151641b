"""Decisions that each rank makes for itself."""

from __future__ import annotations

import pytest

from preflight.domains.script.agreement_rules import (
    collective_swallowed,
    random_branch,
    set_order,
)
from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module

HEAD = (
    "import torch, random\nimport numpy as np\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
)
FIRST = HEAD.count("\n")


def program(text: str) -> Program:
    return Program((parse_module((HEAD + text).encode(), "train.py"),), ())


STEP = (
    "model = DDP(net)\nfor b in data:\n  try:\n    model(b).backward()\n    opt.step()\n"
    "  except {kind}:\n    {body}\n"
)


@pytest.mark.parametrize(
    ("kind", "body", "count"),
    [
        ("RuntimeError", "continue", 1),
        ("Exception as e", "log(e)", 1),
        ("(ValueError, RuntimeError)", "pass", 1),
        ("torch.cuda.OutOfMemoryError", "torch.cuda.empty_cache()", 1),
        ("RuntimeError as e", "if 'CUDA' not in str(e): raise", 1),
        ("ValueError", "continue", 0),
        ("KeyError", "pass", 0),
        ("KeyboardInterrupt", "break", 0),
        ("Exception", "raise", 0),
        ("Exception", "log(); dist.destroy_process_group(); raise", 0),
        ("Exception", "os._exit(1)", 0),
        ("Exception", "traceback.print_exc(); sys.exit(3)", 0),
        ("Exception", "accelerator.end_training(); abort_all()", 0),
        ("Exception", "if world_size == 1: continue\n    raise", 0),
        ("Exception", "dist.barrier()", 0),
    ],
)
def test_an_error_ends_the_rank(kind: str, body: str, count: int) -> None:
    made = program(STEP.format(kind=kind, body=body))
    assert len(list(collective_swallowed(made, mentions(made.modules)))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (STEP.replace("DDP(net)", "net"), 0),
        ("import lightning\n" + STEP, 0),
        (STEP + "  all_finite = agree_by_all_reduce(model)\n", 0),
        (STEP.replace("opt.step()", "pass"), 0),
        (STEP.replace("  try", "  try", 1).replace("for b in data", "with ctx(data) as b"), 0),
        (
            "while True:\n  try:\n    dist.broadcast_object_list(job, 0)\n"
            "  except {kind}:\n    {body}\n",
            1,
        ),
        (
            "for _ in range(3):\n  try:\n    dist.monitored_barrier()\n"
            "  except {kind}:\n    {body}\n",
            0,
        ),
        (
            "for x in xs:\n  try:\n    dist.all_reduce(x, group=g)\n  except {kind}:\n    {body}\n",
            0,
        ),
    ],
)
def test_where_an_error_matters(text: str, count: int) -> None:
    made = program(text.format(kind="Exception", body="pass"))
    assert len(list(collective_swallowed(made, mentions(made.modules)))) == count


CALLED = (
    "class Odd(Exception):\n  pass\n"
    "def check(b):\n  if not len(b):\n    raise Odd('nothing')\n"
    "def step(b):\n  check(b)\n  model(b).backward()\n  opt.step()\n"
    "model = DDP(net)\nfor b in data:\n  try:\n    step(b)\n  except Odd:\n    continue\n"
)


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ("", "", 1),
        ("check(b)\n  model", "model", 0),  # raised nowhere
        ("raise Odd('nothing')", "raise Odd", 1),
        ("  if not len(b):", "  dist.all_reduce(odd)\n  if odd:", 0),  # all leave it out together
        ("continue", "raise", 0),
        ("DDP(net)", "net", 0),
        ("step(b)\n  except", "other.step(b)\n  except", 0),
    ],
)
def test_an_error_of_its_own_out_of_a_function(before: str, after: str, count: int) -> None:
    made = program(CALLED.replace(before, after) if before else CALLED)
    assert len(list(collective_swallowed(made, mentions(made.modules)))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("if np.random.uniform() < p:\n  dist.barrier()\n", 1),
        ("p = random.randint(0, 9)\nif p == 3:\n  dist.all_reduce(x)\n", 1),
        ("torch.manual_seed(rank)\nif torch.rand(()) < 0.5:\n  dist.all_reduce(x)\n", 1),
        ("seed_everything(42)\nif random.random() < p:\n  dist.all_reduce(x)\n", 0),
        ("if rng.random() < p:\n  dist.all_reduce(x)\n", 0),
        ("if random.random() < p:\n  dist.all_reduce(x, group=g)\n", 0),
        ("if torch.rand(1, device='cuda') < p:\n  dist.all_reduce(x)\n", 0),
        ("if torch.rand(1, generator=g) < p:\n  dist.all_reduce(x)\n", 0),
        ("if random.random() < p:\n  x = flip(x)\ndist.all_reduce(x)\n", 0),
    ],
)
def test_chance_is_the_same_on_all_ranks(text: str, count: int) -> None:
    made = program(text)
    assert len(list(random_branch(made, mentions(made.modules)))) == count


GIVEN = "def sums(names):\n  for k in names:\n    dist.all_reduce(d[k])\n"


@pytest.mark.parametrize(
    ("text", "count", "fixed"),
    [
        ("for k in set(d.keys()):\n  dist.all_reduce(d[k])\n", 1, 0),
        ("for k in set(a.keys()).union(b):\n  dist.all_reduce(d[k])\n", 1, 0),
        ("ks = {n.name for n in nodes}\nfor k in ks:\n  dist.broadcast(d[k], 0)\n", 1, 0),
        ("for m in {id(m): m for m in ms}.values():\n  dist.broadcast(m, 0)\n", 0, 0),
        ("for m in set(net.modules()):\n  dist.broadcast(m.weight, 0)\n", 1, 1),
        ("for k in sorted(set(d.keys())):\n  dist.all_reduce(d[k])\n", 0, 0),
        ("for k in set(ranks):\n  dist.new_group([k])\n", 0, 0),
        ("for k in {0, 1}:\n  dist.new_group([k])\n", 0, 0),
        ("for k in d.keys():\n  dist.all_reduce(d[k])\n", 0, 0),
        (f"{GIVEN}T = {{'a', 'b'}}\nsums(T - {{'a'}})\n", 1, 0),
        (f"{GIVEN}T = {{'a', 'b'}}\nsums(T)\nsums(['a'])\n", 0, 0),
        (f"{GIVEN}sums(sorted({{'a', 'b'}}))\n", 0, 0),
        (GIVEN, 0, 0),
        ("for k in {'a', 'b'}:\n  total += d[k]\ndist.all_reduce(total)\n", 0, 0),
    ],
)
def test_collectives_are_in_order(text: str, count: int, fixed: int) -> None:
    made = program(text)
    assert len(list(set_order(made, {}))) == count
    assert len(list(set_order(made, {"PYTHONHASHSEED": "0"}))) == fixed
    assert len(list(set_order(made, {"PYTHONHASHSEED": "random"}))) == count
