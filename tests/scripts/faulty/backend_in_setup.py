import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup_distributed():
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        dist.init_process_group(backend="nccl")  # hit: destroy-missing
    else:
        dist.init_process_group(backend="gloo")
    return rank, local_rank


def main():
    rank, local_rank = setup_distributed()
    device = torch.device("cuda", local_rank)
    model = DDP(nn.Linear(8, 2).to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in torch.load("batches.pt"):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
