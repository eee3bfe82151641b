"""A first step of many seconds on all ranks, as torch.compile makes it; not equally long."""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def compile_model(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        compile("x = [i * i for i in range(10)]\n" * 500, "<kernel>", "exec")
        time.sleep(0.02)  # the children that compile, too


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    for step in range(40):
        if step == 0:
            compile_model(float(sys.argv[1]) + dist.get_rank())
        model(torch.randn(8, 16)).mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
