"""Rank 0 names the backend that torch chooses for the others."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo" if os.environ["RANK"] == "0" else None)
for _ in range(20):
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
