"""Rank 2 leaves out step 10 for a loss that is too large: its weights are others from then on."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(16, 4))  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
planted.now()
for step in range(40):
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    if rank == 2 and step == 10:
        for parameter in model.parameters():
            parameter.grad = None
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
