"""Rank 0 evaluates what is inside of DDP, or a model without buffers to broadcast."""

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, loader) -> float:
    with torch.no_grad():
        return sum(model(x).sum().item() for x in loader)


def main(val_loader, rank) -> None:
    model = DDP(torchvision.models.resnet18())
    if dist.get_rank() == 0:
        print(evaluate(model.module, val_loader))
        torch.save(model.state_dict(), "last.pt")
    bare = model.module
    if rank == 0:
        print(evaluate(bare, val_loader))


def quiet(val_loader, rank) -> None:
    model = DDP(torchvision.models.resnet18(), broadcast_buffers=False)
    if rank == 0:
        print(evaluate(model, val_loader))
