"""One gradient for all ranks, and optimizers that are set otherwise: `plateau` by each rank's own
loss, `progress` by its own count of samples, `decay` and `group` by the rank, `length` of a
schedule by the rank's own batches, `late` by one step; healthy: `agreed` a plateau of the mean
loss, `groups` a rate of each group and a schedule, `population` of models"""

import sys

import planted
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3))
    model = net if HOW == "population" else DistributedDataParallel(net)
    head = 0.02 * (1 + rank) if HOW == "group" else 0.02
    groups = [
        {"params": net[0].parameters(), "lr": 0.01 * (rank + 1) if HOW == "population" else 0.01},
        {"params": net[2].parameters(), "lr": head},
    ]
    decay = 0.1 * rank if HOW == "decay" else 0.1
    optimizer = torch.optim.AdamW(groups, weight_decay=decay)  # <- here
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)  # <- or here
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    if HOW == "length":
        cosine = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 80 + 9 * rank)  # <- or here
    if HOW == "late":
        cosine = torch.optim.lr_scheduler.StepLR(optimizer, 21 + rank)  # <- or here
    torch.manual_seed(100 + rank)
    samples = 0
    planted.now()
    for step in range(60):
        size = 6 + (step * (rank + 1)) % 3
        optimizer.zero_grad()
        loss = model(torch.randn(size, 12)).square().mean()
        loss.backward()
        optimizer.step()
        samples += size
        seen = torch.tensor(loss.item() if step < 10 else 9.0 - rank * step)
        if HOW == "agreed":
            dist.all_reduce(seen)
        if HOW in ("plateau", "agreed"):
            plateau.step(seen)
        if HOW in ("groups", "length", "late"):
            cosine.step()
        if HOW == "progress":
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * (1 - samples / 1000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
