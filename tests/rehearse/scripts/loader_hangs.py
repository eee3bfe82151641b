"""A DataLoader worker of rank 1 never returns from a sample."""

import time

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank == 1 and index == 50:
            planted.now()
            time.sleep(100_000)  # <- here
        return torch.ones(8)


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    for batch in DataLoader(Remote(dist.get_rank()), batch_size=4, num_workers=2):  # <- or here
        model(batch).mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
