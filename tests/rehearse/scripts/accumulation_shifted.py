"""Of three batches whose gradients are accumulated the first one is summed, not the last one."""

import sys
from contextlib import nullcontext

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

BATCHES = 3
dist.init_process_group("gloo")
way, summed = sys.argv[1], BATCHES - 1 if "right" in sys.argv else 0
net = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 2))
ddp = DDP(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
torch.manual_seed(dist.get_rank())
planted.now()
for _ in range(30):
    for number in range(BATCHES):
        quiet = way == "no_sync" and number != summed
        if way == "flag":
            ddp.require_backward_grad_sync = number == summed
        with ddp.no_sync() if quiet else nullcontext():
            (ddp(torch.randn(6, 10)).square().mean() / BATCHES).backward()
    torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
    optimizer.step()  # <- here
    scheduler.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
