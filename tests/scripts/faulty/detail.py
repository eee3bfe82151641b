"""Debugging that ends DDP over Gloo; the variable is read at the import."""

import os

os.environ["TORCH_DISTRIBUTED_DEBUG"] = "detail"  # hit: detail-ddp

import torch
import torch.distributed as dist


def main(model):
    dist.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(model)
