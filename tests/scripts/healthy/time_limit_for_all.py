import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader, limit):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    began, best, done = time.time(), float("inf"), False
    for epoch in range(100):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        if rank == 0:
            best = min(best, loss.item())
            name = f"epoch {epoch}"
            print(name, best, time.time() - began)
        if epoch >= limit:
            done = True
        if done:
            break
    if rank == 0 and best < 1:
        print("low")
    dist.destroy_process_group()
