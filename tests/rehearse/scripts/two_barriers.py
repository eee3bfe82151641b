"""Rank 2 of 3 has a batch less in each epoch: its barrier after an epoch meets the others' after a
batch, for two epochs, and then it is done while they still have some."""

import time

import planted
import torch.distributed as dist


def epoch(batches: int) -> None:
    for _ in range(batches):
        time.sleep(0.05)
        dist.barrier()  # <- here
    dist.barrier()


def main() -> None:
    dist.init_process_group("gloo")
    for _ in range(3):
        epoch(11 if dist.get_rank() == 2 else 12)
    if dist.get_rank() == 2:
        planted.now()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
