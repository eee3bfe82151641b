"""Layers split over the ranks by hand (tensor parallel), and gradients of what all have in common
that are not summed: `embedding` before the first split layer, `sequence` of which each rank
normalises a part, `norms` alone of these, `group` the wrong one of 4 ranks, `clipped` by a norm of
each rank's own; healthy: `right`, `summed` parts of a sequence, `mesh` of 4 ranks, `ensemble` of
heads on one start, `split` alone, `experts` with an average"""

import sys

import planted
import torch
import torch.distributed as dist
from torch import nn

HOW = sys.argv[1]
WORDS, WIDTH, INNER = 40, 32, 96


class Group:
    """The ranks among which the layers are split; and those that have the same part."""

    split: object = None
    copies: object = None


class Into(torch.autograd.Function):
    """Before a layer that is split by columns."""

    @staticmethod
    def forward(ctx, given):
        return given.view_as(given)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        if HOW != "embedding":
            dist.all_reduce(gradient, group=Group.split)
        return gradient


class OutOf(torch.autograd.Function):
    """After a layer that is split by rows."""

    @staticmethod
    def forward(ctx, part):
        whole = part.clone()
        dist.all_reduce(whole, group=Group.split)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Model(nn.Module):
    def __init__(self, part: int, parts: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.position = nn.Parameter(torch.randn(8, WIDTH) / 8)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)
        torch.manual_seed(50 + part)
        self.columns = nn.Linear(WIDTH, INNER // parts)
        self.rows = nn.Linear(INNER // parts, WIDTH, bias=False)
        nn.init.zeros_(self.columns.bias)
        self.part, self.parts = part, parts

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        given = self.norm(self.embedding(words) + self.position)
        parted = HOW in ("sequence", "summed", "norms")
        given = self.sequence(given) if parted else Into.apply(given)
        inner = torch.relu(self.columns(given))
        return self.head(OutOf.apply(self.rows(inner)))

    def sequence(self, given: torch.Tensor) -> torch.Tensor:
        """Each rank has computed a part of the sequence, and gathers the others."""
        mine = given.chunk(self.parts, dim=1)[self.part].contiguous()
        return torch.cat(dist.nn.functional.all_gather(mine, group=Group.split), dim=1)


def alone(rank: int) -> None:
    """Models that begin alike, with heads of their own, and that vote."""
    torch.manual_seed(1)
    body = nn.Linear(WIDTH, WIDTH)
    torch.manual_seed(50 + rank)
    head = nn.Linear(WIDTH, 4)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    for _ in range(60):
        voted = head(torch.tanh(body(torch.randn(64, WIDTH))))
        optimizer.zero_grad()
        voted.square().mean().backward()
        dist.all_reduce(voted.detach())
        if HOW == "experts":
            for parameter in body.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = 2 if HOW in ("group", "mesh") else world
    for first in range(0, world, parts):
        ranks = list(range(first, first + parts))
        made = dist.new_group(ranks)
        Group.split = made if rank in ranks else Group.split
    for part in range(parts):
        ranks = list(range(part, world, parts))
        made = dist.new_group(ranks)
        Group.copies = made if rank in ranks else Group.copies
    planted.now()
    if HOW in ("ensemble", "experts"):
        alone(rank)
        dist.destroy_process_group()
        return
    model = Model(rank % parts, parts)
    trained = model.parameters()
    if HOW == "split":
        trained = [*model.columns.parameters(), *model.rows.parameters()]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    averaged_over = Group.split if HOW == "group" else Group.copies
    torch.manual_seed(100 + rank // parts)
    for _ in range(60):
        words = torch.randint(WORDS, (4, 8))
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        optimizer.zero_grad()
        loss.backward()
        if HOW in ("summed", "norms"):
            norms = model.norm.parameters() if HOW == "summed" else ()
            for parameter in (model.embedding.weight, model.position, *norms):
                dist.all_reduce(parameter.grad, group=Group.split)
        for parameter in model.parameters() if world > parts else ():
            dist.all_reduce(parameter.grad, group=averaged_over)
            parameter.grad /= 2
        if HOW == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
