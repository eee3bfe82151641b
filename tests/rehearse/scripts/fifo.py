"""Rank 2 reads its data from a pipe into which nobody writes."""

import sys

import planted
import torch
import torch.distributed as dist


def records(path: str) -> list[bytes]:
    with open(path, "rb") as source:  # <- here
        return source.readlines()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 2:
        planted.now()
        records(sys.argv[1])
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
