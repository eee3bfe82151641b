"""Silenced on the line."""

import torch.distributed as dist


def main(x, rank: int) -> None:
    if rank == 0:
        dist.all_reduce(x)  # the others call it in C++  # preflight: ignore
    dist.all_reduce(x, async_op=True)  # preflight: ignore
