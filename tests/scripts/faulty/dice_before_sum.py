"""Each rank throws dice of its own about whether to sum."""

import random

import torch.distributed as dist


def train(model, loader) -> None:
    for batch in loader:
        loss = model(batch).mean()
        if random.random() < 0.01:  # hit: random-branch
            dist.all_reduce(loss)
            print(loss.item())
