import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Trainer:
    def __init__(self, net, train_set, val_set, stopper, device):
        self.model = DDP(net.to(device))
        self.sampler = DistributedSampler(train_set)
        self.loader = DataLoader(train_set, 8, sampler=self.sampler)
        self.val_loader = DataLoader(val_set, 8, sampler=DistributedSampler(val_set, shuffle=False))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.stopper, self.device = stopper, device

    def validate(self):
        return sum(self.model(x.to(self.device)).sum().item() for x, _ in self.val_loader)

    def check_early_stopping(self, rank):
        if rank == 0 and self.stopper.early_stop:
            print("Early stopping triggered")
        flag = torch.tensor([self.stopper.early_stop], device=self.device)
        dist.broadcast(flag, src=0)
        return flag.item()

    def fit(self, epochs, rank):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
                loss.backward()
                self.optimizer.step()
            val_loss = self.validate()
            if rank == 0:
                self.stopper(val_loss)
            if self.check_early_stopping(rank):
                break


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(nn.Linear(8, 2), *torch.load("sets.pt")).fit(100, dist.get_rank())
    dist.destroy_process_group()
