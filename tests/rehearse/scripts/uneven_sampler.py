"""A sampler of the user's own that neither pads nor drops: 41 samples on two ranks."""

from collections.abc import Iterator

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Strided(Sampler):
    def __init__(self, total: int, rank: int, size: int) -> None:
        self.indices = range(rank, total, size)

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)


def validate(model: torch.nn.Module) -> torch.Tensor:
    correct = torch.ones(1)
    dist.all_reduce(correct)  # <- or here
    return correct


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
data = TensorDataset(torch.randn(41, 8))
model = DistributedDataParallel(torch.nn.Linear(8, 4))
for (batch,) in DataLoader(data, batch_size=1, sampler=Strided(41, rank, size)):
    model(batch).sum().backward()  # <- here
if rank == 1:
    planted.now()
validate(model)
dist.destroy_process_group()
