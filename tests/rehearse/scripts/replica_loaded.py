"""Rank 1 alone loads other weights after DDP has shared those of rank 0."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 4)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(batch))


dist.init_process_group("gloo")
model = DDP(Net())  # <- here
if dist.get_rank() == 1:
    model.module.head.load_state_dict(torch.nn.Linear(16, 4).state_dict())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
planted.now()
for _ in range(20):
    model(torch.randn(8, 16)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
