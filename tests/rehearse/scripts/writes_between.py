"""Rank 0 writes statistics of all weights after `each` step, and the others wait for it in a
collective before the next forward; healthy: after every 25th (`seldom`), `both` are as long in what
they do there"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


def write(seconds: float) -> None:
    time.sleep(seconds)  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tokens = torch.zeros(1)
    for step in range(200):
        time.sleep(0.02 if HOW == "both" else 0.0)
        if rank == 0 and (HOW == "each" or (HOW == "seldom" and step % 25 == 24)):
            write(0.04)
        dist.all_reduce(tokens.fill_(64))
        loss = model(torch.randn(64, 64)).square().mean()
        time.sleep(0.05)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
