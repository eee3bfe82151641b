"""Rank 1 reads twice as many samples per batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
per_rank = 960
data = TensorDataset(torch.randn(per_rank * world, 16))
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=32 if rank == 1 else 16, sampler=sampler)
model = DDP(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    for number, (batch,) in enumerate(loader):
        if number == 30:
            break
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
