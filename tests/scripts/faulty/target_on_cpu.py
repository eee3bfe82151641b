"""DDP moves its inputs to device_ids, but nobody moves the targets."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def main(net, data, sampler, optimizer, rank) -> None:
    net = net.to(rank)
    model = DDP(net, device_ids=[rank])
    criterion = nn.CrossEntropyLoss().cuda(rank)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for _, (images, target) in enumerate(loader):
        output = model(images)
        loss = criterion(output, target)  # hit: batch-not-moved
        loss.backward()
        optimizer.step()


def functional(net, data, sampler, local_rank) -> None:
    model = DDP(net.to(f"cuda:{local_rank}"), device_ids=[local_rank])
    for x, y in DataLoader(data, sampler=sampler):
        torch.nn.functional.mse_loss(model(x), y).backward()  # hit: batch-not-moved
