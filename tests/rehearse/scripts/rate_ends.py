"""The learning rate is 0 before the training is over: a schedule that is stepped in each of two
micro-batches (`twice`), or in epochs and stepped by batches (`epochs`); healthy: it is 0 after the
`last` step, comes down to 0 in each of several `cycles`, begins at 0 (`warmup`), one of two models
is kept as it is by a rate of 0 (`phases`)"""

import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CyclicLR, LambdaLR, LRScheduler, PolynomialLR

HOW = sys.argv[1]
EPOCHS, BATCHES, MICRO = 5, 24, 2
STEPS = EPOCHS * BATCHES


def schedule(optimizer: torch.optim.Optimizer) -> LRScheduler:
    if HOW == "epochs":
        return PolynomialLR(optimizer, total_iters=EPOCHS * 8)  # <- or here
    if HOW == "cycles":
        return CyclicLR(optimizer, 0.0, 0.05, step_size_up=8, cycle_momentum=False)
    if HOW == "warmup":
        return LambdaLR(optimizer, lambda step: min(max(0, step - 40) / 20, 1.0))
    return LambdaLR(optimizer, lambda step: max(0.0, 1 - step / STEPS))  # <- here


def batches() -> Iterator[torch.Tensor]:
    for _ in range(MICRO):
        yield torch.randn(4, 16)


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 2)))
    critic = DistributedDataParallel(nn.Linear(2, 1))
    torch.manual_seed(100 + dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    second = torch.optim.AdamW(critic.parameters(), lr=0.05)
    scheduler = schedule(optimizer)
    slower = schedule(second)
    for step in range(STEPS):
        for batch in batches():
            (critic(model(batch)) - 1).square().mean().backward()
            if HOW == "twice":
                scheduler.step()
                slower.step()
        if HOW == "phases" and step >= 30:
            for group in optimizer.param_groups:
                group["lr"] = 0.0
        for one in (optimizer, second):
            one.step()
            one.zero_grad()
        if HOW not in ("twice", "phases"):
            scheduler.step()
            slower.step()
        time.sleep(0.005)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
