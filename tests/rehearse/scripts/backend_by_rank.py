"""Rank 1 takes another backend, as a rank does that sees no GPU: the others wait for it in init."""

import os

import planted
import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg  # noqa: F401  registers its backend

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
planted.now()
dist.init_process_group("fake" if rank == 1 else "gloo", rank=rank, world_size=world)  # <- here
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
