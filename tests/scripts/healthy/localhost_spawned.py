"""The tutorial: one machine, ranks of its own, localhost."""

import os

import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world_size) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def four(rank) -> None:
    dist.init_process_group("gloo", "tcp://127.0.0.1:23456", rank=rank, world_size=4)


if __name__ == "__main__":
    mp.spawn(setup, args=(4,), nprocs=4)
    mp.spawn(four, nprocs=4)
