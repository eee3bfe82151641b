"""DDP over NCCL, a GPU each: python train.py STEPS. Rank 0 prints the seconds of its steps, the
first ones, in which everything is loaded, not counted."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WARM_UP, EPOCH, BATCH, WIDTH = 20, 64, 64, 1024


def main() -> None:
    steps = int(sys.argv[1]) + WARM_UP
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    data = TensorDataset(torch.randn(EPOCH * BATCH * dist.get_world_size(), WIDTH))
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    began = 0.0
    for step in range(steps):
        if step % EPOCH == 0:
            sampler.set_epoch(step // EPOCH)
            batches = iter(loader)
        if step == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        (batch,) = next(batches)
        optimizer.zero_grad()
        model(batch.to(device)).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    if dist.get_rank() == 0:
        print(f"seconds {time.perf_counter() - began:.6f}", flush=True)
    dist.destroy_process_group()


main()
