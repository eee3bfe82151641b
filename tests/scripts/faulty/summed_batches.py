"""Gradients of some batches are summed, and sent in each."""

from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, n) -> None:
    model = DDP(net)
    for i, batch in enumerate(loader):
        loss = model(batch).mean()
        loss.backward()  # hit: no-sync-missing
        if (i + 1) % n == 0:
            optimizer.step()
            optimizer.zero_grad()
