"""Stops by a loss that a function of this file sums over all ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data.distributed import DistributedSampler


def epoch_loss(model, loader, optimizer) -> float:
    total = torch.zeros(1)
    for batch in loader:
        loss = model(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    return total.item()


def train(net, data, optimizer) -> None:
    model = DDP(net)
    sampler = DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, sampler=sampler)
    best, wait = 1e9, 0
    for epoch in range(100):
        sampler.set_epoch(epoch)
        loss = epoch_loss(model, loader, optimizer)
        if loss < best:
            best, wait = loss, 0
        else:
            wait += 1
        if wait > 5:
            break
