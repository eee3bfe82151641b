"""Rank 0 alone gathers once more, something smaller than what the others gather in their next step:
Gloo ends it with SIGABRT. With `healthy` all do."""

import sys

import planted
import torch
import torch.distributed as dist

STEPS = 30
EXTRA = 8


def gather(size: int) -> torch.Tensor:
    every = torch.empty(size * dist.get_world_size())
    dist.all_gather_into_tensor(every, torch.ones(size))  # a step's own
    return every


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for step in range(STEPS):
        gather(400)
        if step == EXTRA and ("healthy" in sys.argv or dist.get_rank() == 0):
            few = torch.ones(6)
            every = torch.empty(6 * dist.get_world_size())
            if "healthy" not in sys.argv:
                planted.now()
            dist.all_gather_into_tensor(every, few)  # <- here
    dist.destroy_process_group()
