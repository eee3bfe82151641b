"""A ring of four that passes blocks on with isend and irecv, as ring attention does; in its third
round rank 2 sends to the wrong rank"""

import planted
import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    block, came = torch.full((64,), float(rank)), torch.empty(64)
    for number in range(6):
        onward, before = (rank + 1) % world, (rank - 1) % world
        if rank == 2 and number == 3:
            planted.now()
            onward = (rank + 2) % world
        both = [dist.isend(block, onward), dist.irecv(came, before)]  # <- here
        for work in both:
            work.wait()
        block = came.clone()
    dist.destroy_process_group()
