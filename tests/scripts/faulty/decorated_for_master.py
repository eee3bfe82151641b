import functools
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import densenet121


def master_only(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return func(*args, **kwargs)
        return None

    return wrapper


@master_only
def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        print(sum(model(x.cuda()).sum().item() for x, _ in loader))  # hit: wrapped-under-rank


def main(train_loader, val_loader):
    dist.init_process_group("nccl")  # hit: nccl-on-cpu
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = DDP(densenet121().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        train_loader.sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
        evaluate(model, val_loader)
    dist.destroy_process_group()
