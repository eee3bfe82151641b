"""DDP over NCCL with all ranks on one GPU: python two_hosts.py FAULT FILE

NCCL refuses two ranks of a host on one GPU. Who says by NCCL_HOSTID that each is a host of its own
gets two that exchange their data over sockets. FAULT is what rank 1 does at a step in the middle,
or in every step; `none` is nothing."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS, AT, WIDTH, BATCH = 200, 60, 512, 16
PAUSE = 0.1
"""Seconds of work of one host in each step, which takes a few milliseconds otherwise."""


def acquire(path: str) -> None:
    while os.path.exists(path):
        time.sleep(0.2)


def once(fault: str, model: torch.nn.Module, path: str) -> None:
    """What rank 1 does at one step."""
    if fault == "waits":
        acquire(path)
    elif fault == "calls-another":
        dist.broadcast(torch.ones(1 << 20, device="cuda"), 0)
        torch.cuda.synchronize()
    elif fault == "gives-a-cpu-tensor":
        dist.all_reduce(torch.ones(4))
    elif fault == "diverges":
        with torch.no_grad():
            next(model.parameters()).add_(0.01)
    elif fault == "takes-all-memory":
        torch.cuda.set_per_process_memory_fraction(0.02)
        kept = [torch.empty(1 << 28, device="cuda") for _ in range(64)]
        print(len(kept))
    elif fault == "index-out-of-range":
        rows = torch.nn.Embedding(10, 4).cuda()
        print(rows(torch.tensor([3, 12]).cuda()).sum().item())
    elif fault.startswith("spins"):
        torch.cuda._sleep(1 << 38)  # cycles: more than two minutes


def main(fault: str, path: str) -> None:
    rank = int(os.environ["RANK"])
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    if fault == "takes-another-tree" and rank == 1:
        os.environ["NCCL_ALGO"] = "Tree"
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    torch.manual_seed(1)
    batches = torch.randn(STEPS * BATCH * dist.get_world_size(), WIDTH)
    # a copy to the GPU waits for it; without one the host goes on
    data = TensorDataset(batches.cuda() if fault == "spins" else batches)
    inner = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))).cuda()
    model = DistributedDataParallel(inner, device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
    for step, (batch,) in enumerate(loader):
        if step == AT and rank == 1:
            once(fault, inner, path)
        if step == AT and rank == 0 and fault == "calls-another":
            dist.all_reduce(torch.ones(1 << 20, device="cuda"))
        optimizer.zero_grad()
        model(batch.cuda()).square().mean().backward()
        optimizer.step()
        if fault == "is-late" and rank == 1:
            time.sleep(PAUSE)
    torch.cuda.synchronize()
    dist.destroy_process_group()


main(*sys.argv[1:3])
