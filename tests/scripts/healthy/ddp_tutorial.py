"""The shape of the DDP tutorial: a class that trains, saves on rank 0 and tells the epoch."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Pairs(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int):
        return torch.rand(20), torch.rand(1)


class Trainer:
    def __init__(self, model, loader, optimizer, every: int) -> None:
        self.rank = int(os.environ["LOCAL_RANK"])
        self.model = DDP(model.to(self.rank), device_ids=[self.rank])
        self.loader, self.optimizer, self.every = loader, optimizer, every

    def epoch(self, epoch: int) -> None:
        self.loader.sampler.set_epoch(epoch)
        for source, target in self.loader:
            self.optimizer.zero_grad()
            F.mse_loss(self.model(source), target).backward()
            self.optimizer.step()

    def train(self, epochs: int) -> None:
        for epoch in range(epochs):
            self.epoch(epoch)
            if self.rank == 0 and epoch % self.every == 0:
                torch.save(self.model.module.state_dict(), "snapshot.pt")


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="nccl")
    data = Pairs()
    model = torch.nn.Linear(20, 1)
    loader = DataLoader(data, 32, shuffle=False, sampler=DistributedSampler(data))
    Trainer(model, loader, torch.optim.SGD(model.parameters(), 0.1), 2).train(10)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
