"""No backend is asked for, a group has one of its own, and one is asked for by both names."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group(*sys.argv[1:2])
group = dist.new_group([0, 1], backend="gloo")
model = DDP(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    loss = model(torch.randn(4, 8)).sum()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss, group=group)
dist.destroy_process_group()
