"""Rank 1 waits until a lock that a dead job has left is gone."""

import os
import sys
import time

import planted
import torch
import torch.distributed as dist


def acquire(path: str) -> None:
    while os.path.exists(path):
        time.sleep(0.2)  # <- here


dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
if dist.get_rank() == 1:
    planted.now()
    acquire(sys.argv[1])
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
