"""mp.spawn, Gloo, a barrier before the checkpoint is read."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank: int, world_size: int) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def demo(rank: int, world_size: int) -> None:
    setup(rank, world_size)
    model = DDP(torch.nn.Linear(10, 5))
    path = tempfile.gettempdir() + "/model.checkpoint"
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    model.load_state_dict(torch.load(path, map_location={"cuda:0": f"cuda:{rank}"}))
    model(torch.randn(20, 10)).sum().backward()
    if rank == 0:
        os.remove(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    if torch.cuda.device_count() > 16:
        sys.exit(0)
    mp.spawn(demo, args=(2,), nprocs=2, join=True)
