"""A batch is left out by all ranks together, or by none."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def together(net, loader, optimizer) -> None:
    model = DDP(net)
    for batch in loader:
        loss = model(batch).mean()
        bad = (~torch.isfinite(loss)).float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item() > 0 or torch.isnan(loss):
            continue
        loss.backward()
        optimizer.step()


def resumed(net, loader, optimizer, start) -> None:
    model = DDP(net)
    for step, batch in enumerate(loader):
        if step < start or len(loader) == 0:
            continue
        model(batch).mean().backward()
        optimizer.step()
