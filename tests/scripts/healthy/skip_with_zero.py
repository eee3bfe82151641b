"""A batch without a label has a loss of zero."""

from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer) -> None:
    model = DDP(net)
    for images, mask in loader:
        loss = model(images).mean()
        if mask.sum() == 0:
            loss = loss * 0
        loss.backward()
        optimizer.step()


def alone(net, loader, optimizer) -> None:
    for batch in loader:
        try:
            size = len(batch)
        except TypeError:
            continue
        (net(batch).mean() / max(1, 2)).backward()
        optimizer.step()
        print(size)
