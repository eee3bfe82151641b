"""Seeded, with another seed on each rank."""

import numpy as np
import torch
import torch.distributed as dist


def sync(metrics) -> None:
    dist.all_gather_object([None] * dist.get_world_size(), metrics)


def train(loader, args, rank) -> None:
    np.random.seed(args.seed + rank)
    torch.manual_seed(args.seed + rank)
    for batch in loader:
        lucky = np.random.rand() < 0.1
        if lucky:  # hit: random-branch
            sync(batch)
