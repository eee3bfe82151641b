"""Uneven data under Join."""

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank: int) -> None:
    model = DDP(torch.nn.Linear(1, 1))
    inputs = [torch.ones(1) for _ in range(10 + rank)]
    with Join([model]):
        for x in inputs:
            model(x).sum().backward()
