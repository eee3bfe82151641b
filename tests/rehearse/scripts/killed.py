"""Rank 1 is gone without a word, as if the kernel had killed it."""

import os
import signal

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(32, 32))
for step in range(300):
    if dist.get_rank() == 1 and step == 3:
        planted.now()
        os.kill(os.getpid(), signal.SIGKILL)  # <- here
    model(torch.randn(4, 32)).mean().backward()  # <- or here
dist.destroy_process_group()
