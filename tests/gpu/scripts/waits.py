"""Rank 1 waits for a lock while the others add up numbers on GPUs: python waits.py BACKEND FILE

Over gloo all ranks may have the same GPU."""

import os
import sys
import time

import torch
import torch.distributed as dist


def acquire(path: str) -> None:
    while os.path.exists(path):
        time.sleep(0.2)


backend = sys.argv[1]
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank % torch.cuda.device_count())
torch.cuda.set_device(device)
dist.init_process_group(backend, device_id=device if backend == "nccl" else None)
numbers = torch.ones(1 << 20, device=device)
dist.all_reduce(numbers)
if rank == 1:
    acquire(sys.argv[2])
dist.all_reduce(numbers)
print(numbers[0].item(), flush=True)
dist.destroy_process_group()
