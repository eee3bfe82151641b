"""A layer takes no part in the loss: DDP complains on all ranks at the second forward."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = torch.nn.Linear(4, 4)
        self.unused = torch.nn.Linear(4, 4)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.used(batch)


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())  # <- or here
for step in range(5):
    if step == 1:
        planted.now()
    model(torch.randn(2, 4)).sum().backward()  # <- here
dist.destroy_process_group()
