"""Rank 1 has another vocabulary, so one parameter of another shape: only rank 1 is told so."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def vocabulary(rank: int) -> int:
    return 100 + rank


if __name__ == "__main__":
    dist.init_process_group("gloo")
    words = vocabulary(dist.get_rank())
    dist.barrier()
    if dist.get_rank() == 1:
        planted.now()
    model = DistributedDataParallel(torch.nn.Embedding(words, 16))  # <- here
    model(torch.zeros(3, dtype=torch.long)).sum().backward()
    dist.destroy_process_group()
