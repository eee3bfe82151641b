"""Rank 1 is through before rank 0, and its interpreter aborts while it is taken down."""

import os

import planted
import torch
import torch.distributed as dist


class Native:
    """An object whose destructor fails, as those of native libraries do."""

    def __del__(self) -> None:
        os.abort()


def main() -> None:
    dist.init_process_group("gloo")
    for _ in range(20):
        dist.all_reduce(torch.ones(16))
    if dist.get_rank() == 0:
        planted.now()
        dist.all_reduce(torch.ones(16))  # <- here
    else:
        kept.append(Native())


if __name__ == "__main__":
    kept: list[Native] = []
    main()
