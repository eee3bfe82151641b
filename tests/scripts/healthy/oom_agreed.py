"""A batch is left out by all ranks together, or by a program that has no peers."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def together(net, loader, optimizer) -> None:
    model = DDP(net)
    for batch in loader:
        failed = torch.zeros(1)
        try:
            loss = model(batch).mean()
            loss.backward()
        except torch.cuda.OutOfMemoryError:
            failed += 1
        dist.all_reduce(failed)
        if failed.item() == 0:
            optimizer.step()


def alone(net, loader, optimizer, distributed) -> None:
    model = DDP(net) if distributed else net
    for batch in loader:
        try:
            model(batch).mean().backward()
            optimizer.step()
        except RuntimeError as e:
            if not distributed and "out of memory" in str(e):
                continue
            raise
