"""One rank waits at a barrier of its own while the others go on to the next all-gather."""

import planted
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for step in range(30):
    found = [torch.zeros(4) for _ in range(size)]
    if step == 12 and rank == size - 1:
        planted.now()
        dist.barrier()  # <- here
    dist.all_gather(found, torch.ones(4))
dist.destroy_process_group()
