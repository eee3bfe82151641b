"""torch's own dice, of which the CPU has a seed for each process."""

import torch
import torch.distributed as dist


def mix(x) -> None:
    if torch.rand(1).item() > 0.5:  # hit: random-branch
        dist.broadcast(x, 0)
    else:
        dist.barrier()
