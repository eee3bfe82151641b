"""The same collectives, in another order on rank 0."""

import torch.distributed as dist


def start(x, rank: int) -> None:
    if rank == 0:
        dist.broadcast(x, 0)  # hit: collective-under-rank
        dist.barrier()
    else:
        dist.barrier()
        dist.broadcast(x, 0)
