"""A barrier of the script's own over the store, which polls a counter. `twice`: each epoch counts
on the same key, so that from the second one on it never is as many as there are ranks; `epochs`:
each epoch has a key of its own, and one rank comes half a second later."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def meet(store: dist.TCPStore, key: str) -> None:
    store.add(key, 1)
    while store.add(key, 0) != dist.get_world_size():
        # seen at one line all the time it would be stuck there
        time.sleep(0.2)  # <- here
        time.sleep(0.2)  # <- here


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)


def main() -> None:
    dist.init_process_group("gloo")
    rank, epochs = dist.get_rank(), 3 if sys.argv[1] == "twice" else 10
    at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*at, is_master=False, timeout=timedelta(60), wait_for_workers=False)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        train(model, optimizer)
        if rank == 1:
            time.sleep(0.5)  # it shuffles
        meet(store, "shuffled" if sys.argv[1] == "twice" else f"shuffled/{epoch}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
