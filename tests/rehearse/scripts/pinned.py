"""Each rank is bound to a CPU by the number that this variable has:
SLURM_LOCALID, which torchrun does not set, so that all ranks share one; LOCAL_RANK is right."""

import os
import sys
import time

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

cpus = sorted(os.sched_getaffinity(0))
if sys.argv[1] not in os.environ:
    planted.now()
os.sched_setaffinity(0, {cpus[int(os.environ.get(sys.argv[1], 0)) % len(cpus)]})
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
until = time.monotonic() + 9
for _ in range(600):
    optimizer.zero_grad()
    model(torch.ones(512, 256)).mean().backward()
    optimizer.step()
    going = torch.tensor(float(time.monotonic() < until))
    dist.all_reduce(going, dist.ReduceOp.MIN)
    if not going:
        break
    time.sleep(0.01)
dist.destroy_process_group()
