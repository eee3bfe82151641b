"""Rank 0 alone evaluates the DDP model itself in training mode, whose buffers are broadcast at each
forward; the others are at the barrier"""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    dist.init_process_group("gloo")
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    model = DistributedDataParallel(layers)
    for _ in range(3):
        model(torch.randn(4, 8)).mean().backward()
    if dist.get_rank() == 0:
        planted.now()
        with torch.no_grad():
            model(torch.randn(4, 8))  # <- here
    dist.barrier()
    dist.destroy_process_group()
