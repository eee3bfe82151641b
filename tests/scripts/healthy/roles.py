"""One rank serves, the others work; their loops meet."""

import torch
import torch.distributed as dist
from engine import serve, work


def master(x: torch.Tensor) -> None:
    for _ in range(3):
        dist.broadcast(x, 0)
        dist.barrier()


def worker(x: torch.Tensor) -> None:
    for _ in range(3):
        dist.broadcast(x, 0)
        dist.barrier()


def main(rank: int) -> None:
    x = torch.zeros(1)
    if rank == 0:
        master(x)
    else:
        worker(x)


def elsewhere(x: torch.Tensor, rank: int) -> None:
    if rank != 0:
        work(x)
        return
    dist.broadcast(x, 0)
    serve(x)


def commanded(x: torch.Tensor, rank: int, engine) -> None:
    if rank == 0:
        dist.broadcast(x, 0)
    else:
        engine.listen()
