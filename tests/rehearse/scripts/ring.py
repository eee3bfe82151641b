"""A ring of three that passes blocks on, as ring attention does; rank 1 receives from the one that
it sends to"""

import planted
import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    onward, before = (rank + 1) % world, (rank - 1) % world
    if rank == 1:
        planted.now()
        before = onward
    block = torch.ones(8)
    sending = dist.isend(torch.ones(8), onward)
    dist.recv(block, before)  # <- here
    sending.wait()
    dist.barrier()
    dist.destroy_process_group()
