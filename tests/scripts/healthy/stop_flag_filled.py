import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader, val_loader, stopper, device):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(8, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(100):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        should_stop = torch.tensor([0], device=device)
        if rank == 0:
            loss = sum(model.module(x.to(device)).sum().item() for x, _ in val_loader)
            if stopper(loss):
                should_stop[0] = 1
        if world_size > 1:
            dist.broadcast(should_stop, src=0)
        if should_stop.item() == 1:
            break
    dist.destroy_process_group()
