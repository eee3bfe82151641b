"""One pass over the data: there is no second epoch to shuffle for."""

from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(model, dataset) -> None:
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
    for batch in loader:
        model(batch)


def once(model, dataset) -> None:
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
    for epoch in range(1):
        for batch in loader:
            model(batch, epoch)
