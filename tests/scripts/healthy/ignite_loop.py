"""Ignite's helpers wrap models and loaders."""

import ignite.distributed as idist
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def training(local_rank: int) -> None:
    loader = idist.auto_dataloader(TensorDataset(torch.rand(8, 2)), batch_size=2)
    model = idist.auto_model(torch.nn.Linear(2, 2))
    print(isinstance(model, DistributedDataParallel), DataLoader([1]), local_rank)
    if idist.get_rank() == 0:
        print("first")
    idist.barrier()
    print(loader)


with idist.Parallel(backend="nccl") as parallel:
    parallel.run(training)
