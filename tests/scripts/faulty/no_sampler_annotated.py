"""The same with a parameter that says what it is."""

import torch
import torchvision
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


def loader_of(data: Dataset, size: int):
    return DataLoader(data, size, True)  # hit: sampler-missing


def main(model, size: int):
    model = DistributedDataParallel(model)
    pictures = torchvision.datasets.FakeData()
    train_loader = torch.utils.data.DataLoader(  # hit: sampler-missing
        pictures, batch_size=size
    )
    return model, train_loader, loader_of(pictures, size)
