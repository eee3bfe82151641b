"""The last batch of rank 1 is smaller, and it reduces the activations themselves."""

import planted
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
samples = 40 if rank != 1 else 37
for start in range(0, samples, 8):
    batch = torch.ones(min(8, samples - start), 16)
    if len(batch) < 8:
        planted.now()
    dist.all_reduce(batch)  # <- here
dist.destroy_process_group()
