"""A library of rank 2 ends the process, without an exception and with a code of its own."""

import os

import planted
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    weights = torch.ones(64)
    if dist.get_rank() == 2 and step == 3:
        planted.now()
        os._exit(3)  # <- here
    dist.broadcast(weights, src=0)  # <- or here
    dist.all_reduce(weights)  # <- or here
dist.destroy_process_group()
