"""Rank 0 waits for something that never comes; the others are at the barrier."""

import time

import planted
import torch
import torch.distributed as dist


def wait_for_licence() -> None:
    planted.now()
    time.sleep(100_000)  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    for _ in range(5):
        dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 0:
        wait_for_licence()
    dist.barrier()


if __name__ == "__main__":
    main()
