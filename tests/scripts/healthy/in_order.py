"""A sampler that doesn't shuffle, or as one is told."""

from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(model, dataset, test_dataset, args) -> None:
    ordered = DistributedSampler(dataset, shuffle=False)
    told = DistributedSampler(dataset, args.world_size, args.rank, args.shuffle)
    test = DistributedSampler(test_dataset)
    print(DataLoader(test_dataset, sampler=test))
    for epoch in range(10):
        for batch in DataLoader(dataset, sampler=ordered if epoch else told):
            model(batch)
