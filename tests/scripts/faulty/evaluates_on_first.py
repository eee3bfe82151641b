"""Rank 0 evaluates the wrapped ResNet: its BatchNorm buffers are broadcast in each forward."""

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, loader) -> float:
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
    return right


def main(loader, val_loader, epochs, rank) -> None:
    model = torchvision.models.resnet50().to(rank)
    model = DDP(model, device_ids=[rank])
    for _ in range(epochs):
        if dist.get_rank() == 0:
            print(evaluate(model, val_loader))  # hit: wrapped-under-rank
