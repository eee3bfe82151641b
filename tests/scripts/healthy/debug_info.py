"""INFO does no harm."""

import os

os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
os.environ["NCCL_DEBUG"] = "DETAIL"

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
