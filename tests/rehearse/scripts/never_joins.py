"""Rank 1 is still busy with nothing before init_process_group; rank 0 waits at the rendezvous."""

import os
import time

import planted
import torch
import torch.distributed as dist


def mount_data() -> None:
    if os.environ["RANK"] == "1":
        planted.now()
        time.sleep(100_000)  # <- here


if __name__ == "__main__":
    mount_data()
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
