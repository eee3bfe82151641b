"""Each rank has a file of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    rank = dist.get_rank()
    data = TensorDataset(torch.load(f"part{rank}.pt"))
    model = DDP(torch.nn.Linear(1, 1))
    for (batch,) in DataLoader(data, batch_size=8, shuffle=True):
        model(batch)
