"""Evaluation on rank 0, with a sum inside."""

import torch.distributed as dist


def mean(value):
    dist.all_reduce(value)
    return value / dist.get_world_size()


def evaluate(model, loader):
    for batch in loader:
        mean(model(batch))


def train(model, loader, epochs: int) -> None:
    for epoch in range(epochs):
        for batch in loader:
            model(batch).backward()
        if dist.get_rank() == 0 and epoch % 5 == 0:
            evaluate(model, loader)  # hit: collective-under-rank
