"""Rank 0 evaluates for a while, with real work; the others are at the barrier."""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def evaluate(model: torch.nn.Module, seconds: float) -> float:
    until, worst = time.monotonic() + seconds, 0.0
    while time.monotonic() < until:
        time.sleep(0.01)  # the next batch
        with torch.no_grad():
            worst = max(worst, model(torch.randn(512, 256)).max().item())
    return worst


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(256, 256))
for _ in range(2):
    for _ in range(10):
        model(torch.randn(4, 256)).mean().backward()
    if dist.get_rank() == 0:
        evaluate(model.module, float(sys.argv[1]) / 2)
    dist.barrier()
dist.destroy_process_group()
