"""The same on all ranks: each receives from the one that it sends to, and nobody is the odd one"""

import planted
import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    if rank == 0:
        planted.now()
    onward = (rank + 1) % world
    block = torch.ones(8)
    sending = dist.isend(torch.ones(8), onward)
    dist.recv(block, onward)  # <- here
    sending.wait()
    dist.barrier()
    dist.destroy_process_group()
