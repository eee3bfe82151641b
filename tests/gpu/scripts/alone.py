"""One rank over NCCL by itself: what torch, CUDA and NCCL make of this environment."""

from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(0)
dist.init_process_group(
    "nccl",
    store=dist.HashStore(),
    rank=0,
    world_size=1,
    device_id=torch.device("cuda", 0),
    timeout=timedelta(seconds=20),
)
numbers = torch.ones(1 << 20, device="cuda")
dist.all_reduce(numbers)
torch.cuda.synchronize()
dist.destroy_process_group()
print("sum", numbers[0].item(), flush=True)
