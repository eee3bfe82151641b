"""Four ranks in two groups that do different things, at different speeds, and meet now and then."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
trainers, readers = dist.new_group([0, 1]), dist.new_group([2, 3])
for step in range(60):
    values = torch.ones(32)
    if rank < 2:
        dist.all_reduce(values, group=trainers)
        dist.all_reduce(values[:8].clone(), group=trainers)
    else:
        dist.broadcast(values, src=2, group=readers)
        time.sleep(0.02)
    if step % 20 == 19:
        dist.barrier()
dist.destroy_process_group()
