"""Four ranks, whatever is started."""

import os

import torch.distributed as dist

WORLD_SIZE = 4


def init() -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group(  # hit: rendezvous-hardcoded
        "gloo", init_method="env://", world_size=WORLD_SIZE, rank=rank
    )
