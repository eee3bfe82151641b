"""Arguments that can't be seen, a Work dropped with intent, a step in every batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(x: torch.Tensor, rank: int, options: dict, given: tuple) -> None:
    if rank == 0:
        dist.all_reduce(x, **options)
        dist.broadcast(*given)
    _ = dist.all_reduce(x, async_op=True)


def train(model, loader, optimizer) -> None:
    model = DDP(model)
    for step, batch in enumerate(loader):
        loss = model(batch) / 1
        loss.backward()
        if step % 1 == 0:
            optimizer.step()
