"""DDP, and the DataLoader of a single GPU."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> float:
        return float(index)


def main() -> None:
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = DDP(torch.nn.Linear(1, 1))
    data = Numbers()
    loader = DataLoader(data, batch_size=4, shuffle=True)  # hit: sampler-missing
    for batch in loader:
        model(batch).sum().backward()
    if rank == 0:
        print("done")
