"""ReduceLROnPlateau gets each evaluation several times: Accelerate steps what is `prepared` once
for each rank, or a loop gives it the loss of `each` rank; healthy: their `mean`, a scheduler that
is not prepared (`kept`)"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


def made() -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau]:
    model = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)  # <- here


def accelerated() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer, scheduler = made()
    model, optimizer = accelerator.prepare(model, optimizer)
    if HOW == "prepared":
        scheduler = accelerator.prepare(scheduler)
    for step in range(60):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        if step % 10 == 9:
            scheduler.step(accelerator.reduce(loss.detach(), "mean").item())
        time.sleep(0.02)
    accelerator.end_training()


def plain() -> None:
    dist.init_process_group("gloo")
    model, optimizer, scheduler = made()
    ddp = DistributedDataParallel(model)
    losses = torch.zeros(dist.get_world_size())
    for step in range(60):
        optimizer.zero_grad()
        loss = ddp(torch.randn(8, 16)).square().mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            dist.all_gather_into_tensor(losses, loss.detach().reshape(1))
            for one in losses.tolist() if HOW == "each" else [losses.mean().item()]:
                scheduler.step(one)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    accelerated() if HOW in ("prepared", "kept") else plain()
