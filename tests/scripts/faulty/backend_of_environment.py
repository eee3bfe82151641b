import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train_step(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def main():
    dist.init_process_group(backend=os.environ.get("BACKEND", "nccl"))  # hit: destroy-missing
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = DDP(nn.Linear(8, 2).to(local_rank), device_ids=[local_rank])
    train_step(model, torch.load("loader.pt"), torch.optim.SGD(model.parameters(), 0.1))


if __name__ == "__main__":
    main()
