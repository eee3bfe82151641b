"""ReduceLROnPlateau is given the training loss of each rank's own share."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train_epoch(model, loader, optimizer) -> float:
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


dist.init_process_group("gloo")
train_set = torch.load("set.pt")
sampler = DistributedSampler(train_set)
loader = DataLoader(train_set, 8, sampler=sampler)
model = DDP(nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)
for epoch in range(100):
    sampler.set_epoch(epoch)
    train_loss = train_epoch(model, loader, optimizer)
    scheduler.step(train_loss)  # hit: rate-per-rank

dist.destroy_process_group()
