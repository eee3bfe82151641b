"""BatchNorm keeps statistics of each rank's own batches; dropout, seeds and data differ, too."""

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
model = DDP(torch.nn.Sequential(Net(), torch.nn.Dropout(0.2)), broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(40):
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
