"""A batch without a label is left out, by one rank alone."""

from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer) -> None:
    model = DDP(net)
    for _, (images, mask) in enumerate(loader):
        if images is None or mask.sum() == 0:
            continue  # hit: batch-skipped
        loss = (model(images) * mask).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
