"""Rank 0 sends a large tensor that rank 1 never asks for."""

import planted
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(8))
if dist.get_rank() == 0:
    planted.now()
    dist.send(torch.ones(32 << 20), dst=1)  # <- here
dist.all_reduce(torch.ones(8))
dist.destroy_process_group()
