"""Columns of a matrix are given to a collective over Gloo: all_reduce of the columns of statistics
(`sums`), broadcast of a part of the weights (`shares`); healthy: their copies (`copied`), a
transposed matrix (`transposed`), rows (`rows`)"""

import sys
import time

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


def share(table: torch.Tensor) -> None:
    if HOW == "sums":
        dist.all_reduce(table[:, :8])  # <- here
    elif HOW == "shares":
        dist.broadcast(table[::2], src=0)  # <- here
    elif HOW == "copied":
        part = table[:, :8].contiguous()
        dist.all_reduce(part)
        table[:, :8].copy_(part)
    elif HOW == "transposed":
        dist.all_reduce(table.t())
    else:
        dist.broadcast(table[:8], src=0)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    table = torch.zeros(32, 64)
    for step in range(300):
        optimizer.zero_grad()
        out = model(torch.randn(256, 64))
        out.square().mean().backward()
        optimizer.step()
        table += out.detach()[:32]
        if step % 10 == 9:
            planted.now()
            share(table)
            table.mul_(0.5)
        time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
