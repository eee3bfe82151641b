"""A sum for rank 0 alone, which meets the next one of the others: its results are wrong, and the
last rank to come waits for ever."""

import torch
import torch.distributed as dist


def evaluate(model, loader):
    total = torch.zeros(1)
    for batch in loader:
        total += model(batch)
    dist.all_reduce(total)
    return total


def main(model, loader) -> None:
    rank = dist.get_rank()
    if rank == 0:
        evaluate(model, loader)  # hit: collective-under-rank
    count = torch.ones(1)
    dist.all_reduce(count)


def train(loader, rank: int) -> None:
    for batch in loader:
        if rank == 0:
            dist.all_reduce(batch)  # hit: collective-under-rank
        dist.all_reduce(batch + 1)
