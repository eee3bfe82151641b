"""A seed of its own for each rank, by way of a name."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def main(args, rank: int) -> None:
    seed = args.seed + rank
    torch.manual_seed(seed)
    model = DDP(torch.nn.Linear(1, 1))
    data = TensorDataset(torch.rand(100, 1))
    for (batch,) in DataLoader(data, batch_size=8, shuffle=True):
        model(batch)


def other(given: list, model):
    return DataLoader(given, batch_size=len(DDP(model).device_ids))
