"""Rank 1 has frozen the head: DDP's constructor only counts."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(batch))


dist.init_process_group("gloo")
net = Net()
if dist.get_rank() == 1:
    net.head.requires_grad_(False)
dist.barrier()
planted.now()
model = DDP(net)  # <- here
model(torch.randn(2, 8)).sum().backward()
dist.destroy_process_group()
