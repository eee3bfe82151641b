import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, dataset, device, max_epochs):
        self.device = device
        self.model = DDP(model)
        self.max_epochs = max_epochs
        self.sampler = DistributedSampler(dataset, shuffle=True)  # hit: set-epoch-missing
        self.loader = DataLoader(dataset, batch_size=8, sampler=self.sampler)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x, y):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()

    def fit(self):
        for _e in range(self.max_epochs):
            for x, y in self.loader:
                self.step(x.to(self.device), y.to(self.device))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(nn.Linear(8, 2), torch.load("set.pt"), torch.device("cpu"), 20).fit()
    dist.destroy_process_group()
