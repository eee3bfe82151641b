"""Decisions that each rank makes for itself."""

from __future__ import annotations

import pytest

from preflight.domains.script.agreement_rules import (
    collective_swallowed,
    early_stop_per_rank,
    random_branch,
    set_order,
    wrapped_under_rank,
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


RESNET = "import torchvision\nnet = torchvision.models.resnet50()\nmodel = DDP(net)\n"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel\nmodel = {}\n".format(
    "FullyShardedDataParallel(net)"
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (RESNET + "if int(os.environ['RANK']) == 0:\n  y = model(x)\n", 1),
        (RESNET + "def val(m, d):\n  return m(d)\nif dist.get_rank() == 0:\n  val(model, d)\n", 1),
        (RESNET + "def val(d, net=None):\n  net(d)\nif rank == 0:\n  val(d, net=model)\n", 1),
        (RESNET + "if rank == 0:\n  y = model.module(x)\n", 0),
        (RESNET + "if rank == 0:\n  torch.save(model.state_dict(), 'a')\n", 0),
        (RESNET + "if rank == 0:\n  y = model(x)\nelse:\n  model(z)\n", 0),
        (RESNET + "if epoch == 0:\n  y = model(x)\n", 0),
        (RESNET + "if rank == 0 or args.all:\n  y = model(x)\n", 0),
        (RESNET + "def val(m, d):\n  m = m.module\n  m(d)\nif rank == 0:\n  val(model, d)\n", 0),
        ("model = DDP(transformer)\nif rank == 0:\n  y = model(x)\n", 0),
        (
            RESNET.replace("DDP(net)", "DDP(net, broadcast_buffers=False)")
            + "if rank == 0:\n  model(x)\n",
            0,
        ),
        (FSDP + "if rank == 0:\n  sd = model.state_dict()\n", 1),
        (FSDP + "if not rank:\n  out = model(x)\n", 1),
        (FSDP + "sd = model.state_dict()\nif rank == 0:\n  torch.save(sd, 'a')\n", 0),
        (
            FSDP + "with t(model, StateDictType.LOCAL_STATE_DICT):\n  pass\n"
            "if rank == 0:\n  model.state_dict()\n",
            0,
        ),
    ],
)
def test_the_wrapped_model_is_for_all(text: str, count: int) -> None:
    made = program(text)
    assert len(list(wrapped_under_rank(made, mentions(made.modules)))) == count


STOP = (
    "from torch.utils.data import DistributedSampler\n"
    "model = DDP(net)\na = DistributedSampler(x)\nb = DistributedSampler(y)\n"
    "for epoch in range(9):\n  a.set_epoch(epoch)\n  loss = val(model)\n"
    "  if loss > best:\n    wait += 1\n  if wait >= 3:\n    break\n"
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
    ],
)
def test_all_stop_together(text: str, count: int) -> None:
    made = program(text)
    assert len(list(early_stop_per_rank(made, mentions(made.modules)))) == count


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
        ("for k in {'a', 'b'}:\n  total += d[k]\ndist.all_reduce(total)\n", 0, 0),
    ],
)
def test_collectives_are_in_order(text: str, count: int, fixed: int) -> None:
    made = program(text)
    assert len(list(set_order(made, {}))) == count
    assert len(list(set_order(made, {"PYTHONHASHSEED": "0"}))) == fixed
    assert len(list(set_order(made, {"PYTHONHASHSEED": "random"}))) == count
