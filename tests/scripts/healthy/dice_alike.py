"""Dice that fall alike on all ranks, or decide nothing about collectives."""

import random

import torch.distributed as dist


def train(model, loader, args) -> None:
    random.seed(args.seed)
    for batch in loader:
        loss = model(batch).mean()
        if random.random() < 0.01:
            dist.all_reduce(loss)
