"""Rank 0 previews by a model that is kept, wrapped, in a dict."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
        self.register_buffer("freqs", torch.arange(8))

    def forward(self, x):
        return self.body(x)


def train_step(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


dist.init_process_group("gloo")
rank = dist.get_rank()

train_loader, val_loader = torch.load("loaders.pt")
nets = {"g": Net(), "d": Net()}
for name in nets:
    nets[name] = DDP(nets[name])
optimizer = torch.optim.AdamW(nets["g"].parameters())
for _epoch in range(10):
    train_step(nets["g"], train_loader, optimizer)
    if rank == 0:
        for x, _ in val_loader:
            print(nets["g"](x).mean())  # hit: wrapped-under-rank

dist.destroy_process_group()
