"""Some ranks leave before the others meet."""

import sys

import torch.distributed as dist


def save(model, path: str) -> None:
    if dist.get_rank() != 0:
        return  # hit: collective-under-rank
    path.write(model)
    dist.barrier()


def evaluate(loader, rank: int) -> None:
    for batch in loader:
        if rank > 0:
            continue  # hit: collective-under-rank
        dist.all_reduce(batch)


def main(rank: int, world_size: int) -> None:
    if rank == world_size - 1:
        sys.exit()  # hit: collective-under-rank
    dist.barrier()


def search(loader, rank: int) -> None:
    for batch in loader:
        if rank == 0:
            return  # hit: collective-under-rank
        print(batch)
    dist.barrier()
