"""Another head in each step, which DDP is told: find_unused_parameters."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleList(torch.nn.Linear(8, 2) for _ in range(3))

    def forward(self, batch: torch.Tensor, head: int) -> torch.Tensor:
        return self.heads[head](batch)


dist.init_process_group("gloo")
model = DDP(Net(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    model(torch.randn(2, 8), step % 2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
