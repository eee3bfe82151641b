"""Rank 1 of 3 takes 0.2 s longer for each step, and everybody waits for it."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def throttled(rank: int) -> None:
    if rank == 1:
        time.sleep(0.2)  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        loss = model(torch.randn(8, 16)).mean()
        throttled(rank)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
