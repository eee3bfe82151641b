"""Every rank writes its checkpoint in every step, to storage that takes its time."""

import io
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def save(model: torch.nn.Module) -> None:
    torch.save(model.state_dict(), io.BytesIO())
    time.sleep(0.25)  # <- here


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    save(model)
dist.destroy_process_group()
