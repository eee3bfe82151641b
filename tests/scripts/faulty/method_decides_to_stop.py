import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, net, train_set, val_set):
        self.model = DDP(net)
        self.train_sampler = DistributedSampler(train_set)
        self.train_loader = DataLoader(train_set, 8, sampler=self.train_sampler)
        self.val_loader = DataLoader(val_set, 8, sampler=DistributedSampler(val_set, shuffle=False))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.best, self.bad = float("inf"), 0

    def train_one_epoch(self, epoch):
        self.train_sampler.set_epoch(epoch)
        for x, y in self.train_loader:
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()

    def validate(self):
        return sum(self.model(x).sum().item() for x, _ in self.val_loader)

    def should_stop(self, val_loss):
        if val_loss < self.best:
            self.best, self.bad = val_loss, 0
        else:
            self.bad += 1
        return self.bad >= 5

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_one_epoch(epoch)
            val_loss = self.validate()
            if self.should_stop(val_loss):
                return  # hit: early-stop-per-rank


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(nn.Linear(8, 2), *torch.load("sets.pt")).fit(100)
    dist.destroy_process_group()
