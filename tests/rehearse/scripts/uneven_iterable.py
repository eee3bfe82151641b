"""A stream that is dealt out by index: rank 0 gets one batch more, and the others are at home."""

from collections.abc import Iterator
from itertools import islice

import planted
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, rank: int, size: int, total: int) -> None:
        self.rank, self.size, self.total = rank, size, total

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in islice(range(self.total), self.rank, None, self.size):
            yield torch.full((8,), float(number))


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = torch.nn.Linear(8, 1)
for batch in DataLoader(Lines(rank, size, 97), batch_size=4):
    model(batch).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # <- here
print(f"rank {rank} is through", flush=True)
planted.now()
dist.destroy_process_group()
