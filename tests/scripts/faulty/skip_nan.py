"""A batch whose loss is NaN is left out, by one rank alone."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer) -> None:
    model = DDP(net)
    for batch in loader:
        loss = model(batch).mean()
        if not torch.isfinite(loss):
            print("loss is NaN, skipping")
            continue  # hit: batch-skipped
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
