"""The process group of NCCL is left to the end of the process."""

import os

import torch
from torch import distributed as dist


def main(rounds: int) -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if torch.cuda.is_available():
        dist.init_process_group(backend="nccl")  # hit: destroy-missing
    for _ in range(rounds):
        dist.all_reduce(torch.ones(8).cuda())


if __name__ == "__main__":
    main(3)
