"""Gradients are added up over four batches, and sent in each."""

from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4


def train(model, loader, optimizer) -> None:
    model = DDP(model)
    for step, batch in enumerate(loader):
        loss = model(batch) / ACCUMULATE
        loss.backward()  # hit: no-sync-missing
        if (step + 1) % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()


def scaled(model, loader, optimizer, scaler, args) -> None:
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss /= args.accum
        scaler.scale(loss).backward()  # hit: no-sync-missing
        if step % args.accum == 0 or step == len(loader) - 1:
            scaler.step(optimizer)
            scaler.update()
