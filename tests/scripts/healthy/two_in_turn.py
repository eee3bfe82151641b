"""The second optimizer steps every n batches, with a backward of its own."""

from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, other, loader, first, second, n) -> None:
    model, critic = DDP(net), DDP(other)
    for i, batch in enumerate(loader):
        critic(batch).mean().backward()
        second.step()
        second.zero_grad()
        if i % n == 0:
            model(batch).mean().backward()
            first.step()
            first.zero_grad()
