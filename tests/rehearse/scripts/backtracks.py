"""Rank 1 cleans a text with a regular expression that takes for ever, and keeps the interpreter's
lock meanwhile; rank 0 is at the barrier"""

import re

import planted
import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 1:
        planted.now()
        re.match(r"(a|aa)+$", "a" * 60 + "b")  # <- here
    dist.barrier()
    dist.destroy_process_group()
