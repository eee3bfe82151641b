import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save_model(model, rank, path):
    if rank == 0:
        states = model.state_dict()  # hit: wrapped-under-rank
        torch.save(states, path)


def main():
    dist.init_process_group("nccl")  # hit: nccl-on-cpu
    rank = dist.get_rank()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = FSDP(nn.Linear(64, 64).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(3):
        for x in torch.load("batches.pt"):
            model(x.cuda()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        save_model(model, rank, f"model_{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
