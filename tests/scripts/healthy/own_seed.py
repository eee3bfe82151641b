"""Each rank draws in an order of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def main(args) -> None:
    torch.manual_seed(args.seed + dist.get_rank())
    model = DDP(torch.nn.Linear(1, 1))
    data = TensorDataset(torch.rand(100, 1))
    for (batch,) in DataLoader(data, batch_size=8, shuffle=True):
        model(batch)
