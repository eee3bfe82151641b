"""The kernel takes a DataLoader worker of rank 0."""

import os
import signal

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Big(Dataset):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank == 0 and index == 30:
            planted.now()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(8)


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    for batch in DataLoader(Big(dist.get_rank()), batch_size=4, num_workers=1):  # <- here
        model(batch).mean().backward()  # <- or here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
