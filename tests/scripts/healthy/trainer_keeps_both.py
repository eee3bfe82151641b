import os

import torch
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet18


class Trainer:
    def __init__(self, model, train_data, val_data):
        self.rank = int(os.environ["LOCAL_RANK"])
        self.non_ddp_model = model.to(self.rank)
        self.model = DDP(self.non_ddp_model, device_ids=[self.rank])
        self.train_data, self.val_data = train_data, val_data
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def validate(self):
        self.non_ddp_model.eval()
        with torch.no_grad():
            for x, y in self.val_data:
                print(F.cross_entropy(self.non_ddp_model(x.to(self.rank)), y.to(self.rank)))

    def test(self):
        model = self.model.module
        model.eval()
        return [model(x.to(self.rank)) for x, _ in self.val_data]

    def train(self):
        for epoch in range(10):
            self.train_data.sampler.set_epoch(epoch)
            for x, y in self.train_data:
                x, y = x.to(self.rank), y.to(self.rank)
                self.optimizer.zero_grad()
                F.cross_entropy(self.model(x), y).backward()
                self.optimizer.step()
            if self.rank == 0:
                self.validate()
                self.test()


if __name__ == "__main__":
    init_process_group(backend="nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    Trainer(resnet18(), *torch.load("loaders.pt")).train()
    destroy_process_group()
