"""Uneven inputs under Join: rank 0 is through long before rank 2."""

import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
with Join([model]):
    for _ in range(10 + 20 * rank):
        model(torch.randn(4, 8)).mean().backward()
        time.sleep(0.1)
dist.barrier()
dist.destroy_process_group()
