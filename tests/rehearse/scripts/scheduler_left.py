"""A scheduler of an optimizer that is left: `wrapped` a new one was made after DDP, `unfrozen`
after some epochs; healthy: `both` alternate with parameters of their own, `again` a new scheduler
as well, `copied` its rate is set by hand"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


def main() -> None:
    dist.init_process_group("gloo")
    plain = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)  # <- here
    model = DistributedDataParallel(plain)
    critic = DistributedDataParallel(nn.Linear(2, 1))
    second = torch.optim.SGD(critic.parameters(), lr=0.1)
    slower = torch.optim.lr_scheduler.StepLR(second, 10)
    if HOW in ("wrapped", "copied"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(60):
        if HOW in ("unfrozen", "again") and step == 20:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            if HOW == "again":
                scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 40)
        optimizer.zero_grad()
        second.zero_grad()
        critic(model(torch.randn(8, 16))).square().mean().backward()
        if step % 8 == 7 or HOW != "both":
            second.step()
        optimizer.step()
        scheduler.step()
        slower.step()
        if HOW == "copied":
            optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
