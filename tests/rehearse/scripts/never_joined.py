"""Waits for --local_rank, which torchrun does not pass: each rank trains by itself; with `infers`
each rank has a part of the data, and nothing to agree on."""

import argparse
import time

import planted
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("what", nargs="?")
parser.add_argument("--local_rank", type=int, default=-1)
given = parser.parse_args()

model = torch.nn.Linear(8, 8)
if given.local_rank != -1:
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
planted.now()
for _ in range(60):
    time.sleep(0.05)
    loss = model(torch.randn(2, 8)).sum()
    if given.what != "infers":
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
