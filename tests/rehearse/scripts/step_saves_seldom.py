"""A checkpoint after every eighth step, and a line of log after each: what a step takes is work."""

import io
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Slow(torch.nn.Linear):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        time.sleep(0.06)
        return super().forward(given)


dist.init_process_group("gloo")
model = DDP(Slow(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    loss = model(torch.randn(8, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.3f}", flush=True)
    if step % 8 == 7:
        torch.save(model.state_dict(), io.BytesIO())
        time.sleep(0.25)
dist.destroy_process_group()
