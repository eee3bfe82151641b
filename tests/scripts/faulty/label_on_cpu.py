"""Images go to the GPU, labels do not, in a function that is given everything."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def epoch(model, criterion, loader, optimizer, device) -> None:
    for image, target in loader:
        image, target = image.to(device), target
        output = model(image)
        loss = criterion(output, target)  # hit: batch-not-moved
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(net, loader, optimizer, device) -> None:
    criterion = nn.CrossEntropyLoss()
    epoch(DDP(net), criterion, loader, optimizer, device)
