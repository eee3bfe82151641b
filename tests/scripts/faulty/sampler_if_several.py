import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(args, dataset):
    dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    sampler = DistributedSampler(dataset) if world_size > 1 else None  # hit: set-epoch-missing
    loader = DataLoader(dataset, batch_size=8, shuffle=sampler is None, sampler=sampler)
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch = 0
    while epoch < args.epochs:
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        epoch += 1
    dist.destroy_process_group()
