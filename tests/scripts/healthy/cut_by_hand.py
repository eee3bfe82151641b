"""Each rank takes every n-th file."""

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def main(files: list) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    arrays = [np.load(name) for name in files[rank::world_size]]
    data = TensorDataset(torch.tensor(np.concatenate(arrays)))
    model = DDP(torch.nn.Linear(1, 1))
    for (batch,) in DataLoader(data, batch_size=8, shuffle=True):
        model(batch)
