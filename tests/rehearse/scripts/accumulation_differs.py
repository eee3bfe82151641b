"""Rank 1 was given another number of accumulation steps: it synchronises half as often."""

from contextlib import nullcontext

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
every = 2 if rank == 0 else 4
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(64):
    last = (step + 1) % every == 0
    with nullcontext() if last else model.no_sync():
        loss = model(torch.randn(2, 16)).mean() / every
        loss.backward()  # <- here
    if last:
        optimizer.step()
        optimizer.zero_grad()
if rank == 1:
    planted.now()
dist.barrier()  # <- or here
dist.destroy_process_group()
