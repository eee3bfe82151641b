"""A head that only pretraining uses takes no part in the loss."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 2)
        self.pretraining_head = torch.nn.Linear(8, 8)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(batch))


dist.init_process_group("gloo")
model = DDP(Net())  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    if step == 1:
        planted.now()
    optimizer.zero_grad()
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
