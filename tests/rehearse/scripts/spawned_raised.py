"""Its ranks are children of torch.multiprocessing.spawn, and rank 1 fails."""

import socket

import planted
import torch
import torch.distributed as dist


def work(rank: int, size: int, port: int) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    for step in range(100):
        if rank == 1 and step == 5:
            planted.now()
            raise LookupError("token 50257 is not in the vocabulary")  # <- here
        dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (2, port), nprocs=2)
