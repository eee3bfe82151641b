"""Features gathered for a loss by a collective that carries no gradient."""

from __future__ import annotations

import pytest

from preflight.domains.script.gathered import gathered_without_gradient
from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module

HEAD = (
    "import torch\nimport torch.distributed as dist\nimport torch.nn.functional as F\n"
    "def parts(x):\n  return [torch.empty_like(x) for _ in range(dist.get_world_size())]\n"
)
GATHER = "def from_all(x):\n  out = parts(x)\n  dist.all_gather(out, x)\n  return torch.cat(out)\n"
LOSS = "def contrast(a, b, y):\n  all_b = from_all(b)\n  return F.cross_entropy(a @ all_b.t(), y)\n"
TORCHS = GATHER.replace("dist.all_gather", "torch.distributed.nn.functional.all_gather")
NAMED = GATHER.replace("  return torch.cat(out)", "  whole = torch.cat(out)\n  return whole")
BEST = LOSS.replace("F.cross_entropy(a @ all_b.t(), y)", "(a @ all_b.t()).argmax(1)")
TRAIN = "for a, b, y in loader:\n  loss = contrast(net(a), net(b), y)\n  loss.backward()\n"
ALONE = (
    "def contrast(a, b, y):\n  out = parts(b)\n  dist.all_gather(out, b)\n"
    "  b = torch.cat(out)\n  return F.cross_entropy(torch.einsum('id,jd->ij', a, b), y)\n"
)


def hits(text: str) -> list[str]:
    made = Program((parse_module((HEAD + text).encode(), "train.py"),), ())
    return [hit.text for hit in gathered_without_gradient(made, mentions(made.modules))]


@pytest.mark.parametrize(
    "text",
    [
        GATHER + LOSS + TRAIN,
        GATHER.replace("out, x)", "out, x.contiguous())") + LOSS + TRAIN,
        NAMED + LOSS + TRAIN,
        GATHER + LOSS.replace("a @ all_b.t()", "torch.matmul(a, all_b.T)") + TRAIN,
        GATHER + LOSS.replace("a @ all_b.t()", "a.matmul(all_b.T)") + TRAIN,
        ALONE + TRAIN,
        ALONE.replace("'id,jd->ij', a, b", "'id,jd->ij', a, torch.cat(out)") + TRAIN,
    ],
)
def test_what_a_loss_is_made_of_has_no_gradient(text: str) -> None:
    (found,) = hits(text)
    assert found.startswith("dist.all_gather(out, ")


@pytest.mark.parametrize(
    "text",
    [
        GATHER.replace("  return", "  out[dist.get_rank()] = x\n  return") + LOSS + TRAIN,
        GATHER.replace("  return", "  out = [x, *out[1:]]\n  return") + LOSS + TRAIN,
        GATHER.replace("out, x)", "out, x.detach())") + LOSS + TRAIN,
        "@torch.no_grad()\n" + GATHER + LOSS + TRAIN,
        GATHER.replace("  dist", "  with torch.no_grad():\n    dist") + LOSS + TRAIN,
        GATHER + "@torch.inference_mode()\n" + LOSS + TRAIN,
        GATHER + LOSS + "with torch.no_grad():\n  for a, b, y in loader:\n    contrast(a, b, y)\n",
        GATHER + LOSS.replace("contrast", "valid_loss") + TRAIN,
        GATHER + LOSS.replace("a @ all_b.t()", "all_b.mean(1)") + TRAIN,
        GATHER
        + LOSS.replace("F.cross_entropy(a @ all_b.t(), y)", "(a @ all_b.t()).argmax(1)")
        + TRAIN,
        GATHER + LOSS + TRAIN.replace("  loss.backward()\n", ""),
        TORCHS + LOSS + TRAIN,
    ],
)
def test_where_it_is_meant_or_no_loss_is_made_of_it(text: str) -> None:
    assert hits(text) == []
