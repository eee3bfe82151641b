"""A function in a second module fails on rank 2 of 3, under DDP."""

import augment
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(500):
    batch = augment.flip(torch.randn(4, 16), step, rank)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
