"""Rank 1 of two that the script has started itself fails before it joins, and has not said who it
is yet; rank 0 waits for it."""

import os
import sys

import planted
import torch.distributed as dist
import ways


def work(rank: int) -> None:
    if rank == 1:
        planted.now()
        paths = json.loads(os.environ["DATA"])  # noqa: F821  <- here
        print(paths)
    dist.init_process_group("gloo", rank=rank)
    dist.barrier()


if __name__ == "__main__":
    sys.exit(ways.start(work, 2))
