"""A sampler that never hears of the epoch."""

from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(model, dataset, val_dataset, epochs: int) -> None:
    sampler = DistributedSampler(dataset)  # hit: set-epoch-missing
    val_sampler = DistributedSampler(val_dataset)
    fixed = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, sampler=sampler)
    print(val_sampler, fixed)
    for _epoch in range(epochs):
        for batch in loader:
            model(batch)
