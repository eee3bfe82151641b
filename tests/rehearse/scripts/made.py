"""Starts its ranks itself, in the way that it is told."""

import os
import sys

import torch
import torch.distributed as dist
import ways
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def work(rank: int) -> None:
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(160, 8))
    sampler = DistributedSampler(data, shuffle=False)
    for (batch,) in DataLoader(data, 4, sampler=sampler, num_workers=int(sys.argv[1] == "fork")):
        model(batch).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(ways.start(work, 2))
