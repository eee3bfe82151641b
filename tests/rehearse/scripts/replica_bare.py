"""The forward is that of model.module: no gradient is ever summed, or none of the head (`head`)."""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)))  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
body = DDP(torch.nn.Linear(16, 16)) if "head" in sys.argv else torch.nn.Identity()
planted.now()
for _ in range(40):
    model.module(body(torch.randn(8, 16))).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
