"""Rank 1 is in native code that keeps the interpreter's lock: a regular expression without end."""

import re

import planted
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    if dist.get_rank() == 1 and step == 5:
        planted.now()
        re.match(r"(a+)+$", "a" * 60 + "b")  # <- here
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
