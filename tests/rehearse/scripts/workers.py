"""DataLoader workers that stay, shuffled epochs, and batches that are there in time."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Squares(Dataset):
    def __len__(self) -> int:
        return 600

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        number = torch.tensor([index / 600])
        return number, number.square()


def main() -> None:
    dist.init_process_group("gloo")
    data = Squares()
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, 10, sampler=sampler, num_workers=2, persistent_workers=True)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh()))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for number, square in loader:
            (model(number) - square).square().mean().backward()
            model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
