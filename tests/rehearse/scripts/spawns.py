"""Starts its ranks itself, with torch.multiprocessing.spawn."""

import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def work(rank: int, size: int, port: int) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for _ in range(60):
        model(torch.randn(4, 8)).mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (2, port), nprocs=2)
    print("trained", flush=True)
