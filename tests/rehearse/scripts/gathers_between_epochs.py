"""Rank 0 alone gathers the losses of an epoch, and the others go on; with `healthy` all gather."""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(120, 8))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        losses = []
        for (batch,) in loader:
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        if dist.get_rank() == 0 or "healthy" in sys.argv:
            planted.now()
            told = [torch.zeros(len(losses)) for _ in range(dist.get_world_size())]
            dist.all_gather(told, torch.stack(losses))  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
