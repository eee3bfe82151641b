"""Every n steps something, but not the optimizer; the loss is divided by what it is a mean of."""

from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, optimizer, scheduler, every: int) -> None:
    model = DDP(model)
    for step, batch in enumerate(loader):
        loss = model(batch).sum() / every
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            scheduler.step()
            print(loss.item())
