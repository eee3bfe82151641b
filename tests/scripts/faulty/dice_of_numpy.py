"""Seeds for torch alone, and numbers of NumPy."""

import numpy as np
import torch
import torch.distributed as dist

torch.manual_seed(0)


def step(x) -> None:
    if np.random.rand() < 0.5:  # hit: random-branch
        dist.all_reduce(x)
