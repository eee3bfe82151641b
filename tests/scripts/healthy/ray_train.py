"""Ray prepares the loader."""

import ray.train.torch
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def per_worker() -> None:
    loader = DataLoader(TensorDataset(torch.rand(8, 2)), shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    model = DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
    for (batch,) in loader:
        model(batch)
