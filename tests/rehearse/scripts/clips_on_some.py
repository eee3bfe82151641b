"""Sharded gradients are clipped, which sums their norm over all ranks, where a rank's own loss is
high: rank 1 leaves it out once. With `healthy` all do it."""

import sys

import planted
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 30
WITHOUT = 8

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(STEPS):
        model(torch.randn(8, 8)).square().mean().backward()
        if "healthy" in sys.argv or rank != 1 or step != WITHOUT:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            norm.full_tensor()
        else:
            planted.now()
        optimizer.step()
        optimizer.zero_grad()
        model(torch.randn(8, 8))  # <- here
    dist.destroy_process_group()
