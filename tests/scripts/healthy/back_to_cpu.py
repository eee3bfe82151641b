"""NCCL, and what goes to another device than a GPU."""

import torch
import torch.distributed as dist

CPU = torch.device("cpu")


def main(x: torch.Tensor, gathered: torch.Tensor) -> None:
    dist.init_process_group("nccl")
    dist.all_reduce(x)
    print(x.to("cpu"), gathered.to(CPU), x.to(torch.device("cpu")), x.to(torch.float32))
