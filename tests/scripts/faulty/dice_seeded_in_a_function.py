"""Each rank has a seed of its own, by way of a function."""

import random

import torch.distributed as dist


def set_seed(seed) -> None:
    random.seed(seed)


def step(x) -> None:
    set_seed(42 + dist.get_rank())
    if random.random() < 0.5:  # hit: random-branch
        dist.all_reduce(x)
