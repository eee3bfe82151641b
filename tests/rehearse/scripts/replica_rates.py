"""A learning rate that depends on the rank."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(16, 4))
rate = 0.1 if dist.get_rank() == 0 else 0.2
optimizer = torch.optim.AdamW(model.parameters(), lr=rate)  # <- here
planted.now()
for _ in range(20):
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
