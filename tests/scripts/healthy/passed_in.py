"""A data set that comes from elsewhere may be anything."""

import torch
from dataset import build
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def main(args, given) -> None:
    data = build(args)
    model = DDP(torch.nn.Linear(1, 1))
    options = {"sampler": None}
    for loader in (DataLoader(data), DataLoader(given), DataLoader(given, **options)):
        for batch in loader:
            model(batch)
