"""Rank 1 builds a deeper model: DDP's constructor complains on all ranks."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
depth = 1 + dist.get_rank()
layers = [torch.nn.Linear(8, 8) for _ in range(depth)]
dist.barrier()
planted.now()
model = DistributedDataParallel(torch.nn.Sequential(*layers))  # <- here
model(torch.randn(2, 8)).sum().backward()
dist.destroy_process_group()
