import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, loader, device):
    model.eval()
    with torch.no_grad():
        return sum(model(x.to(device)).sum().item() for x in loader)


def main(loader, val_loader, local_rank):
    dist.init_process_group("nccl")
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2)).to(device)
    model = DDP(net, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x.to(device)).mean().backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(evaluate(model, val_loader, device))
        dist.barrier()
    dist.destroy_process_group()
