"""Each rank takes the scale of its own data, after DDP has shared what rank 0 had."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16)
        self.register_buffer("scale", torch.ones(16))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(batch * self.scale))


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(Net(), broadcast_buffers=False)  # <- here
model.module.scale.copy_(torch.randn(1000, 16).mul(1 + rank).std(0))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(40):
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
