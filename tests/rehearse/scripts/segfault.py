"""An extension of rank 0 reads where nothing is."""

import ctypes

import planted
import torch
import torch.distributed as dist


def kernel() -> bytes:
    return ctypes.string_at(0)  # <- here


dist.init_process_group("gloo")
for step in range(100):
    gathered = [torch.zeros(4) for _ in range(dist.get_world_size())]
    if dist.get_rank() == 0 and step == 6:
        planted.now()
        kernel()
    dist.all_gather(gathered, torch.ones(4))
dist.destroy_process_group()
