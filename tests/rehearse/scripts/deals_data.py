"""How DistributedSampler shards the data: `same` gives all ranks shard 0, `order` never calls
set_epoch; without an argument it is healthy, and validation has the same order in all epochs"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


def main() -> None:
    dist.init_process_group("gloo")
    data, held = (TensorDataset(torch.randn(n, 16)) for n in (160, 64))
    mine = 0 if HOW == "same" else dist.get_rank()
    sampler = DistributedSampler(data, dist.get_world_size(), mine)
    loader = DataLoader(data, 8, sampler=sampler)
    validation = DataLoader(held, 8, sampler=DistributedSampler(held))
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(5):
        if HOW != "order":
            sampler.set_epoch(epoch)
        for step, (batch,) in enumerate(loader):  # <- here
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            time.sleep(0.02)
            if step % 5 == 4:
                with torch.no_grad():
                    for (batch,) in validation:
                        model.module(batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
