"""Gradient accumulation over four batches with no_sync, clipping and a schedule."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU()))
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
for step in range(160):
    last = step % 4 == 3
    with nullcontext() if last else model.no_sync():
        (model(torch.randn(8, 16)).mean() / 4).backward()
    if last:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
dist.destroy_process_group()
