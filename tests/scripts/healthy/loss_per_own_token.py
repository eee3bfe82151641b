"""Each rank's loss is a mean over its own tokens; those of all are counted for the log alone."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, rank: int) -> None:
    model = DDP(net.to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.to(rank), y.to(rank)
        total = F.cross_entropy(model(x), y, ignore_index=-100, reduction="sum")
        tokens = (y != -100).sum()
        loss = total / tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen = torch.stack([total.detach(), tokens])
        dist.all_reduce(seen)
        print(float(seen[0] / seen[1]))
