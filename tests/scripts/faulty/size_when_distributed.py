# started by: torchrun --nproc-per-node=4 train.py
"""A number of ranks in the text, where there are several."""

import os

import torch.distributed as dist

LOCAL_RANK = int(os.getenv("LOCAL_RANK", "-1"))
if LOCAL_RANK != -1:
    dist.init_process_group("gloo", world_size=3, rank=LOCAL_RANK)  # hit: rendezvous-hardcoded
