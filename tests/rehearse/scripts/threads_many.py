"""Ranks that compute on the CPU, each with four times as `many` threads as there are CPUs. Healthy:
`one` thread each, which is what torchrun sets; as many in a job that `waits`, as for a GPU"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


def main() -> None:
    cpus = len(os.sched_getaffinity(0))
    torch.set_num_threads(1 if HOW == "one" else 4 * cpus)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Waits(64, 64) if HOW == "waits" else layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(60):
        given = torch.randn(16, 64) if HOW == "waits" else torch.randn(256, 512)
        optimizer.zero_grad()
        model(given).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


class Waits(torch.nn.Linear):
    """As for a GPU that computes meanwhile."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        time.sleep(0.1)
        return super().forward(given)


def layers() -> torch.nn.Module:
    return torch.nn.Sequential(
        *(layer for _ in range(6) for layer in (torch.nn.Linear(512, 512), torch.nn.GELU()))
    )


if __name__ == "__main__":
    main()
