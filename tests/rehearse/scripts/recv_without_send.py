"""A pipeline of three stages in which stage 1 waits for a micro-batch that is never sent."""

import planted
import torch
import torch.distributed as dist


def stage(rank: int, count: int) -> None:
    for number in range(count):
        batch = torch.zeros(64)
        if rank > 0:
            if rank == 1 and number == 4:
                planted.now()
            dist.recv(batch, src=rank - 1)  # <- here
        if rank < dist.get_world_size() - 1:
            dist.send(batch + 1, dst=rank + 1)


dist.init_process_group("gloo")
stage(dist.get_rank(), 4 if dist.get_rank() != 1 else 5)
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
