"""Every rank makes its batches itself, in the training loop: no worker does that meanwhile."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def tokenise(words: int) -> torch.Tensor:
    until = time.monotonic() + 0.2
    ids = [0] * words
    while time.monotonic() < until:
        ids = [hash(f"word {n}") % 1000 for n in range(words)]  # <- here
    return torch.tensor(ids, dtype=torch.float32).view(-1, 64)


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
for _ in range(60):
    model(tokenise(512)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
