"""A sum behind the usual test for a group, called on rank 0 alone; a Work of a group, dropped."""

import torch.distributed as dist


def is_dist_avail_and_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def mean(x):
    if not is_dist_avail_and_initialized():
        return x
    dist.all_reduce(x)
    return x / dist.get_world_size()


def log(x, rank: int) -> None:
    if rank == 0:
        print(mean(x))  # hit: collective-under-rank


def start(x, group) -> None:
    dist.all_reduce(x, group=group, async_op=True)  # hit: async-not-waited
