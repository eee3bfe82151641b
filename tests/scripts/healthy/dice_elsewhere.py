"""Without a seed, but what hangs on it is each rank's own affair."""

import random

import torch.distributed as dist

shared = random.Random(7)


def augment(x):
    return x.flip(0) if random.random() < 0.5 else x


def train(loader, model) -> None:
    for batch in loader:
        if random.random() < 0.5:
            batch = augment(batch)
        if shared.random() < 0.1:
            dist.barrier()
        if random.random() < 0.5:
            dist.all_reduce(batch)
        else:
            dist.all_reduce(-batch)
