"""In the group of ranks 0-2, rank 2 gathers where the two others reduce; rank 3 has its own."""

import planted
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
workers = dist.new_group([0, 1, 2])
spare = dist.new_group([3])
for step in range(40):
    values = torch.ones(12)
    if rank == 3:
        dist.all_reduce(values, group=spare)
    elif rank == 2 and step == 9:
        planted.now()
        parts = [torch.zeros(12) for _ in range(3)]
        dist.all_gather(parts, values, group=workers)  # <- here
    else:
        dist.all_reduce(values, group=workers)
dist.barrier()
dist.destroy_process_group()
