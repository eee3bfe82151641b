"""no_sync() around every backward: nothing is ever summed."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(16, 4))  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
planted.now()
for _ in range(40):
    with model.no_sync():
        model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
