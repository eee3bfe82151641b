"""One process a node downloads; all of them meet after it."""

import torch.distributed as dist
from hub import fetch


def main(local_rank: int, rank: int) -> None:
    if local_rank == 0:
        fetch("model")
    dist.barrier()
    if rank == 0:
        fetch("card")
    dist.barrier()
    try:
        fetch("rest")
    finally:
        dist.barrier()
