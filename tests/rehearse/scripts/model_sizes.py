"""Rank 2 has read another vocabulary: its embedding is larger."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
words = 100 + (dist.get_rank() == 2)
net = torch.nn.Sequential(torch.nn.Embedding(words, 8), torch.nn.Linear(8, 2))
dist.barrier()
planted.now()
model = DDP(net)  # <- here
model(torch.zeros(2, dtype=torch.long)).sum().backward()
dist.destroy_process_group()
