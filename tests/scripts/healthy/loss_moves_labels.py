"""A loss of its own, which puts labels where they belong."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Loss(torch.nn.Module):
    def forward(self, output, target):
        return (output - target.to(output.device)).mean()


def epoch(net, loader, optimizer, device) -> None:
    model, criterion = DDP(net), Loss()
    for image, target in loader:
        image = image.to(device)
        output = model(image)
        loss = criterion(output, target)
        loss.backward()
        optimizer.step()
