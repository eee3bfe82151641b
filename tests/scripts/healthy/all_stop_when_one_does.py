import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(dataset, target=0.01, max_steps=10000):
    dist.init_process_group("gloo")
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, 8, sampler=sampler)
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step, epoch = 0, 0
    while step < max_steps:
        sampler.set_epoch(epoch)
        epoch += 1
        running = torch.zeros(1)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.detach()
            step += 1
        dist.all_reduce(running, op=dist.ReduceOp.AVG)
        if running.item() / len(loader) < target:
            break
    dist.destroy_process_group()
