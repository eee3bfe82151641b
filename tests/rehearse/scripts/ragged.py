"""Sizes that differ by rank where they may: scatter, objects, all-to-all with splits."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for step in range(30):
    part = torch.zeros(4)
    dist.scatter(part, [torch.ones(4)] * size if rank == 0 else None, src=0)
    told: list[object] = [None] * size
    dist.all_gather_object(told, "x" * (rank * 100 + step))
    # rank r sends r + 1 numbers to everybody
    sent = torch.full(((rank + 1) * size,), float(rank))
    got = torch.empty(sum(range(1, size + 1)))
    dist.all_to_all_single(got, sent, list(range(1, size + 1)), [rank + 1] * size)
dist.destroy_process_group()
