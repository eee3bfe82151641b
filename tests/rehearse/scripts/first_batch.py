"""Asks for the next batch of a new iterator in each step: workers start again each time, and with a
DistributedSampler it is the same batch; `draws` is a way of sampling, `kept` keeps the iterator"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    data = TensorDataset(torch.randn(800, 16))
    if "draws" in sys.argv:
        loader = DataLoader(data, batch_size=4, shuffle=True)
    else:
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=1)
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = iter(loader)
    for _ in range(90):
        (batch,) = next(kept if "kept" in sys.argv else iter(loader))  # <- here
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
