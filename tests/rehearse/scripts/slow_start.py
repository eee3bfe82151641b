"""Ranks that take long before they join: all, or the one that is given."""

import os
import sys
import time

import torch
import torch.distributed as dist

seconds, who = float(sys.argv[1]), sys.argv[2]
if who in ("all", os.environ["RANK"]):
    time.sleep(seconds)
dist.init_process_group("gloo")
for _ in range(20):
    dist.all_reduce(torch.ones(8))
dist.destroy_process_group()
