"""The same by a call."""

import torch
import torch.distributed as dist


def main(model):
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # hit: detail-ddp
    dist.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(model)
