"""All ranks agree to stop, by a broadcast that all of them get to."""

import torch
import torch.distributed as dist


def train(loader, patience: int, rank: int) -> None:
    stop = torch.zeros(1)
    bad = 0
    for epoch in range(100):
        loss = sum(loader)
        dist.all_reduce(loss)
        if rank == 0:
            bad = bad + 1 if loss > 1 else 0
            if bad > patience:
                stop += 1
        dist.broadcast(stop, 0)
        if stop.item():
            break
        print(epoch)
    if loader is None:
        return
    dist.barrier()
