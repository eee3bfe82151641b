"""A stream that each rank takes its own part of."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(dist.get_rank(), 1000, dist.get_world_size())


def train() -> None:
    model = DDP(torch.nn.Linear(1, 1))
    for batch in DataLoader(Stream(), batch_size=4):
        model(batch)
