# started by: torchrun --nnodes=2 --nproc-per-node=4 --rdzv-endpoint=h1:29400 train.py
"""localhost is another machine on each node."""

import os

import torch.distributed as dist


def init(rank, size) -> None:
    os.environ["MASTER_ADDR"] = "localhost"  # hit: rendezvous-hardcoded
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=size)


def other(rank, size) -> None:
    dist.init_process_group(  # hit: rendezvous-hardcoded
        "gloo", "tcp://127.0.0.1:2345", rank=rank, world_size=size
    )
