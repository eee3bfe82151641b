"""Accumulates gradients over many micro-batches, with a tracer that lets all ranks wait at each
point; `steps`: the tracer waits at the steps of the optimizer only."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

MICRO = 6


class Tracer:
    def __init__(self, at_steps: bool) -> None:
        self.at_steps = at_steps

    def point(self, name: str) -> None:
        if self.at_steps and name != "step":
            return
        dist.barrier()  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    tracer = Tracer(at_steps="steps" in sys.argv[1:])
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())
    for _ in range(12):
        for micro in range(MICRO):
            with nullcontext() if micro == MICRO - 1 else model.no_sync():
                tracer.point("forward")
                loss = model(torch.randn(8, 16)).square().mean() / MICRO
                tracer.point("backward")
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tracer.point("step")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
