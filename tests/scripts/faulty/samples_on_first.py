"""Rank 0 shows what the wrapped generator makes now and then."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, loader, noise, show) -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    net_g = DistributedDataParallel(net)
    for i, _ in enumerate(loader):
        if rank == 0 and i % 500 == 0:
            with torch.no_grad():
                show(net_g(noise))  # hit: wrapped-under-rank
