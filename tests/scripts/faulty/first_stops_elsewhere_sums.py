"""The first rank stops, beside a sum of something else."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def mean(value):
    dist.all_reduce(value)
    return value


def train(net, loader, optimizer) -> None:
    model = DDP(net)
    bad = 0
    for epoch in range(100):
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
        print(mean(loss.detach()))
        if dist.get_rank() == 0:
            bad += 1
            if bad > epoch:
                break  # hit: early-stop-per-rank
