"""A sampler of one's own, in one file; its loader in the same."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset


class ByLength(Sampler):
    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count

    def __iter__(self):
        return iter(range(self.rank, 100, self.count))


def main(args) -> None:
    data = TensorDataset(torch.rand(100, 1))
    model = DDP(torch.nn.Linear(1, 1))
    batches = DataLoader(data, batch_sampler=ByLength(args.rank, args.world_size))
    for batch in batches:
        model(batch)
    for batch in DataLoader(data, 4, False, ByLength(args.rank, args.world_size)):
        model(batch)
