"""Three stages that pass micro-batches on; the ranks do different things by design."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, last = dist.get_rank(), dist.get_world_size() - 1
for _ in range(60):
    batch = torch.zeros(256)
    if rank > 0:
        dist.irecv(batch, src=rank - 1).wait()
    time.sleep(0.01)
    if rank < last:
        dist.isend(batch + 1, dst=rank + 1).wait()
dist.barrier()
dist.destroy_process_group()
