"""The address of a machine of the author's."""

import torch.distributed as dist


def init(rank, size) -> None:
    dist.init_process_group(  # hit: rendezvous-hardcoded
        "gloo", init_method="tcp://10.1.1.20:23456", rank=rank, world_size=size
    )
