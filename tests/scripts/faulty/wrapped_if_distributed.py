import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(size, 64), nn.BatchNorm1d(64), nn.Linear(64, 1))

    def forward(self, x):
        return self.layers(x)


def train(model, loader, criterion, optimizer, device, sampler):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


def evaluate(model, loader, device):
    model.eval()
    right = 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            right += (output.round() == target.to(device)).sum().item()
    print(right)


def main(train_loader, test_loader, sampler, epochs=3):
    is_distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    rank = 0
    if is_distributed:
        dist.init_process_group("gloo")
        rank = dist.get_rank()
    device = torch.device("cpu")
    model = Net(30).to(device)
    if is_distributed:
        model = DDP(model)
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        train(model, train_loader, nn.BCEWithLogitsLoss(), optimizer, device, sampler)
        if rank == 0:
            evaluate(model, test_loader, device)  # hit: wrapped-under-rank
