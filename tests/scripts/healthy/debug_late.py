"""The variable is read when torch is imported: this comes too late for anything."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"


def main() -> None:
    dist.init_process_group("gloo")
    DDP(torch.nn.Linear(2, 2))
