"""FSDP2 on CPU: rank 0 fails while it builds the optimizer's state."""

import planted
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def schedule(step: int, rank: int) -> float:
    if rank == 0 and step == 4:
        planted.now()
    return 1 / (4 - step) if rank == 0 else 0.1  # <- here


dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
model = fully_shard(torch.nn.Linear(16, 16), mesh=mesh)
optimizer = torch.optim.Adam(model.parameters())
for step in range(50):
    model(torch.randn(2, 16)).mean().backward()
    optimizer.param_groups[0]["lr"] = abs(schedule(step, dist.get_rank()))
    optimizer.step()
dist.destroy_process_group()
