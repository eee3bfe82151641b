"""Send and receive are for two; so is a ring of them."""

import torch
import torch.distributed as dist


def pair(rank: int) -> None:
    x = torch.zeros(1)
    if rank == 0:
        dist.send(x, dst=1)
    elif rank == 1:
        dist.recv(x, src=0)


def pipeline(rank: int, world_size: int, x: torch.Tensor) -> None:
    if rank > 0:
        dist.recv(x, rank - 1)
    if rank < world_size - 1:
        dist.send(x, rank + 1)
    dist.barrier()
    request = dist.isend(x, (rank + 1) % world_size) if rank % 2 else dist.irecv(x)
    request.wait()
