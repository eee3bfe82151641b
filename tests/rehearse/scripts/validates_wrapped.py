"""Rank 0 alone validates after each epoch, through the DDP wrapper of a model with BatchNorm
(pytorch/pytorch#54059); with `healthy` it takes the module inside of it."""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    healthy = "healthy" in sys.argv
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        model.train()
        for _ in range(20):
            loss = model(torch.randn(8, 16)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            if epoch == 0 and not healthy:
                planted.now()
            model.eval()
            with torch.no_grad():
                for _ in range(10):
                    (model.module if healthy else model)(torch.randn(8, 16))  # <- here
        dist.barrier()  # <- or here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
