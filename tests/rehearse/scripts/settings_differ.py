"""A setting that rank 1 has otherwise than the others: python settings_differ.py NAME=VALUE [all]

It is set before torch is imported, as by the image or the login shell of one node; `all` sets it on
every rank."""

import os
import sys

import planted

rank = int(os.environ["RANK"])
name, _, value = sys.argv[1].partition("=")
if rank == 1 or sys.argv[2:] == ["all"]:
    os.environ[name] = value

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

planted.now()
dist.init_process_group("gloo")  # <- here
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(30):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
