"""FSDP2 on CPU: rank 1 stops between two layers' all-gathers, rank 0 waits for its shard."""

import threading

import planted
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

GATE = threading.Event()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(32, 32)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(batch))


dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
model = torch.nn.Sequential(Block(), Block())
for block in model:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    if dist.get_rank() == 1 and step == 5:
        planted.now()
        GATE.wait()  # <- here
    model(torch.randn(4, 32)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
