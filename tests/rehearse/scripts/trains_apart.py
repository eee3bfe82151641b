"""A loss with weights of its own beside a model in DDP: `same` and `other` they start from one seed
or several and nobody averages their gradients, `list` they are those of layers in a plain list that
the optimizer got by hand, `added` to the model after DDP has wrapped it; healthy: `wrapped`,
`averaged` by hand, `experts` that exchange tokens, `adapted` before DDP wraps it"""

import itertools
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


class Margin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(4, 8))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, given: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.scale * given @ self.centres.t(), labels)


class Adapted(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, base.in_features) / 4)
        self.up = nn.Parameter(torch.zeros(base.out_features, 2))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.base(given) + given @ self.down.t() @ self.up.t()


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 8)
        self.last = nn.Linear(8, 8)
        self.more = [nn.Linear(8, 8), nn.Linear(8, 8)] if HOW == "list" else []

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        given = self.first(given)
        for layer in self.more:
            given = given + layer(given)
        return self.last(given)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank if HOW == "other" else 0)
    body, criterion = Body(), Margin()
    if HOW == "adapted":
        body.first = Adapted(body.first)
    model = DistributedDataParallel(body, find_unused_parameters=HOW == "added")
    if HOW == "added":
        body.first = Adapted(body.first)
    if HOW in ("added", "adapted"):
        criterion.requires_grad_(False)
    parts = [model.parameters(), criterion.parameters()]
    if HOW == "list":
        criterion.requires_grad_(False)
        parts[1] = itertools.chain(*(layer.parameters() for layer in model.module.more))
    loss_of = DistributedDataParallel(criterion) if HOW == "wrapped" else criterion
    groups = [{"params": [*part]} for part in parts]
    optimizer = torch.optim.SGD(groups, lr=0.02)  # <- here
    torch.manual_seed(100 + rank)
    for _ in range(40):
        labels = torch.randint(4, (8,))
        out = model(torch.randn(8, 16) + labels[:, None])
        if HOW == "experts":
            other = torch.empty_like(out)
            dist.all_to_all_single(other, out.detach())
            out = out + other
        optimizer.zero_grad()
        loss_of(out, labels).backward()
        if HOW == "averaged":
            for parameter in criterion.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
        optimizer.step()
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
