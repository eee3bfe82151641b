"""A DataLoader worker of rank 1 cannot read a sample."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank == 1 and index == 20:
            planted.now()
            raise OSError(f"sample {index} is truncated")  # <- here
        return torch.full((8,), float(index))


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    loader = DataLoader(Samples(dist.get_rank()), batch_size=4, num_workers=2)
    for batch in loader:  # <- or here
        model(batch).mean().backward()
        model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
