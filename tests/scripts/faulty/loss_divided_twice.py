"""A loss per token of all ranks, of whose gradients DDP takes the mean once more."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def of_all(count: torch.Tensor) -> torch.Tensor:
    both = count.detach().clone()
    dist.all_reduce(both, op=dist.ReduceOp.SUM)
    return both


def train(net, loader, rank: int) -> None:
    model = DDP(net.to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.to(rank), y.to(rank)
        total = F.cross_entropy(model(x), y, ignore_index=-100, reduction="sum")
        tokens = of_all((y != -100).sum())
        loss = total / tokens  # hit: loss-divided-twice
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_in_place(net, loader, rank: int) -> None:
    model = DDP(net.to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.to(rank), y.to(rank)
        tokens = (y != -100).sum()
        dist.all_reduce(tokens)
        optimizer.zero_grad()
        nll = F.nll_loss(model(x), y, ignore_index=-100, reduction="sum")
        (nll / tokens).backward()  # hit: loss-divided-twice
        optimizer.step()
