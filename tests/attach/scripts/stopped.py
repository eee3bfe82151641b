"""Rank 2 is stopped by a signal in the middle of its training."""

import os
import signal

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
for step in range(1_000_000):
    if step == 9 and dist.get_rank() == dist.get_world_size() - 1:
        planted.now()
        os.kill(os.getpid(), signal.SIGSTOP)
    model(torch.ones(4, 8)).mean().backward()
