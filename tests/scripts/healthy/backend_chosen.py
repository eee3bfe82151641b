"""NCCL with a GPU, Gloo without."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main() -> None:
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    if torch.cuda.is_available():
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = DDP(torch.nn.Linear(2, 2))
    print(model)


def told(backend: str = "nccl") -> None:
    dist.init_process_group(backend=backend)
