"""Rank 1 of three that the script has started itself waits for something before it joins, and has
not said who it is yet."""

import sys
import time

import planted
import torch.distributed as dist
import ways


def work(rank: int) -> None:
    if rank == 1:
        planted.now()
        time.sleep(1000)  # <- here
    dist.init_process_group("gloo", rank=rank)
    dist.barrier()


if __name__ == "__main__":
    sys.exit(ways.start(work, 3))
