"""Rank 1 lacks a setting and ends before it joins; rank 0 waits for it."""

import os

import planted
import torch.distributed as dist

PATHS = {"0": "/data/a", "2": "/data/c"}


def configure() -> str:
    rank = os.environ["RANK"]
    if rank not in PATHS:
        planted.now()
    return PATHS[rank]  # <- here


if __name__ == "__main__":
    path = configure()
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()
