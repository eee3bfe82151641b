"""Gradients that are summed over the ranks and divided nowhere."""

from __future__ import annotations

import pytest

from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module
from preflight.domains.script.summed import gradients_summed

HEAD = (
    "import torch\nimport torch.distributed as dist\nfrom torch.optim import SGD\n"
    "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
)
HOOK = (
    "def hook(state, bucket):\n"
    "  fut = dist.all_reduce(bucket.buffer(), group=state, async_op=True).get_future()\n"
    "  return fut.then(lambda f: f.value()[0])\n"
)
REGISTERED = "model = DDP(net)\nmodel.register_comm_hook(None, hook)\n"
SYNC = (
    "def sync(model):\n  for p in model.parameters():\n    if p.grad is not None:\n"
    "      dist.all_reduce(p.grad)\n"
)
FLAT = (
    "def sync(model):\n  grads = [p.grad for p in model.parameters()]\n"
    "  flat = torch._utils._flatten_dense_tensors(grads)\n  dist.all_reduce(flat)\n"
    "  for g, s in zip(grads, unflatten(flat, grads)):\n    g.copy_(s)\n"
)
TRAIN = (
    "opt = SGD(model.parameters(), lr=0.1)\nfor x, y in loader:\n  loss = crit(model(x), y)\n"
    "  loss.backward()\n  sync(model)\n  opt.step()\n  total += loss.item() * len(x)\n"
)


def hits(text: str, head: str = HEAD) -> list[str]:
    made = Program((parse_module((head + text).encode(), "train.py"),), ())
    return [hit.other for hit in gradients_summed(made, mentions(made.modules))]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HOOK + REGISTERED, "the hook hook()"),
        (HOOK.replace("dist.all_reduce(bucket", "state.allreduce(bucket") + REGISTERED, "the hook"),
        (HOOK.replace("bucket.buffer()", "pack(bucket)") + REGISTERED, "the hook"),
        (SYNC + TRAIN, "all_reduce of grad"),
        (SYNC.replace("p.grad)", "p.grad.data, op=dist.ReduceOp.SUM)") + TRAIN, "all_reduce"),
        (FLAT + TRAIN, "all_reduce"),
        (TRAIN.replace("sync(model)", "[dist.all_reduce(p.grad) for p in ps]"), "all_reduce"),
    ],
)
def test_a_sum_that_nobody_divides(text: str, why: str) -> None:
    (other,) = hits(text)
    assert other.startswith(why)


DIVIDED = "dist.all_reduce(p.grad)\n      p.grad /= dist.get_world_size()"


@pytest.mark.parametrize(
    "text",
    [
        HOOK,  # registered nowhere
        HOOK.replace("f.value()[0]", "f.value()[0] / n") + REGISTERED,
        HOOK.replace("f.value()[0]", "f.value()[0].div_(n)") + REGISTERED,
        HOOK.replace("bucket.buffer()", "bucket.buffer().div_(n)") + REGISTERED,
        HOOK.replace("group=state", "op=dist.ReduceOp.AVG") + REGISTERED,
        HOOK.replace("f.value()[0]", "mean(f)")
        + "def mean(f):\n  return f.value()[0] / n\n"
        + REGISTERED,
        "def hook(state, bucket):\n  return default_hooks.allreduce_hook(state, bucket)\n"
        + REGISTERED,
        "model.register_comm_hook(None, default_hooks.fp16_compress_hook)\n",
        HOOK + REGISTERED + "loss = loss / world\n",
        HOOK + REGISTERED + "rate = args.lr / dist.get_world_size()\n",
        SYNC.replace("dist.all_reduce(p.grad)", DIVIDED) + TRAIN,
        SYNC.replace("dist.all_reduce(p.grad)", "dist.all_reduce(p.grad, dist.ReduceOp.AVG)"),
        SYNC.replace("p.grad)", "p.grad, group=tensor_parallel)") + TRAIN,
        SYNC + TRAIN + "for p in ps:\n  p.grad.mul_(0.5)\n",
        SYNC + TRAIN.replace("crit(model(x), y)", "crit(model(x), y, reduction='sum')"),
        SYNC + TRAIN.replace("crit(model(x), y)", "crit(model(x), y).sum()\n  loss /= tokens"),
        SYNC.replace("dist.all_reduce(p.grad)", "g = p.grad / n\n      dist.all_reduce(g)"),
        FLAT.replace("dist.all_reduce(flat)\n", "dist.all_reduce(flat)\n  flat /= n\n") + TRAIN,
        FLAT.replace("g.copy_(s)", "g.copy_(s / n)") + TRAIN,
        "import lightning\n" + HOOK + REGISTERED,
        "dist.all_reduce(hits)\n" + TRAIN,
        SYNC.replace("dist.all_reduce", "comm.all_reduce") + TRAIN,
    ],
)
def test_a_mean_or_a_sum_that_is_meant(text: str) -> None:
    assert hits(text) == []


def test_adam_divides_by_the_size_of_gradients() -> None:
    assert hits(HOOK + REGISTERED, HEAD.replace("SGD", "AdamW")) == []
