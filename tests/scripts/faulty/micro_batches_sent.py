"""A loop of micro-batches in each of which DDP sends its gradients."""

from torch.nn.parallel import DistributedDataParallel


def train(net, stream, optimizer, micro_steps) -> None:
    model = DistributedDataParallel(net)
    for _ in range(100):
        optimizer.zero_grad()
        for _ in range(micro_steps):
            loss = model(next(stream)).mean() / micro_steps
            loss.backward()  # hit: no-sync-missing
        optimizer.step()
