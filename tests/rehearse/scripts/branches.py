"""The same collective on two lines, and each rank takes its own; nothing is wrong with that."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for step in range(100):
    if rank == 0:
        weights = torch.full((16,), float(step))
        dist.broadcast(weights, src=0)
    else:
        weights = torch.empty(16)
        dist.broadcast(weights, src=0)
    if rank == 0:
        dist.gather(weights, [torch.empty(16) for _ in range(size)], dst=0)
    else:
        dist.gather(weights, dst=0)
dist.destroy_process_group()
