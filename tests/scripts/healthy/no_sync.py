"""Accumulation that sums in the last batch only."""

from contextlib import nullcontext

from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, optimizer, accumulate: int) -> None:
    model = DDP(model)
    for step, batch in enumerate(loader):
        last = (step + 1) % accumulate == 0
        with nullcontext() if last else model.no_sync():
            loss = model(batch) / accumulate
            loss.backward()
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
