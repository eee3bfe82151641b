"""Rank 0 writes the checkpoint to a folder that is not there; the others wait at the barrier."""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model: torch.nn.Module, path: str) -> None:
    torch.save(model.state_dict(), path)  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(20):
        model(torch.randn(2, 8)).sum().backward()
        if step == 10:
            if dist.get_rank() == 0:
                planted.now()
                save(model.module, sys.argv[1])
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
