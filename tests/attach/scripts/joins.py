"""Joins the group of all ranks, and trains for as long as it is let; rank 1 may be slower."""

import os
import sys
import time

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
slower = float(sys.argv[1]) if sys.argv[1:] and os.environ.get("RANK") == "1" else 0.0
model = DistributedDataParallel(torch.nn.Linear(8, 1))
planted.now()
while True:
    model(torch.ones(4, 8)).mean().backward()
    time.sleep(0.05 + slower)
