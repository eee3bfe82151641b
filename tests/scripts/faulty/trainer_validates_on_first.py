import os

import torch
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import mobilenet_v3_small


class Trainer:
    def __init__(self, model, train_data, val_data, optimizer, save_every):
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.model = model.to(self.gpu_id)
        self.train_data = train_data
        self.val_data = val_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.model = DDP(self.model, device_ids=[self.gpu_id])

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        for source, targets in self.train_data:
            self.optimizer.zero_grad()
            output = self.model(source.to(self.gpu_id))
            F.cross_entropy(output, targets.to(self.gpu_id)).backward()
            self.optimizer.step()

    def _validate(self, epoch):
        self.model.eval()
        with torch.no_grad():
            for source, targets in self.val_data:
                output = self.model(source.to(self.gpu_id))
                print(epoch, F.cross_entropy(output, targets.to(self.gpu_id)))
        self.model.train()

    def train(self, max_epochs):
        for epoch in range(max_epochs):
            self._run_epoch(epoch)
            if self.gpu_id == 0 and epoch % self.save_every == 0:
                self._validate(epoch)  # hit: wrapped-under-rank


def main(save_every, total_epochs):
    init_process_group(backend="nccl")  # hit: nccl-on-cpu
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = mobilenet_v3_small()
    train, val = torch.load("loaders.pt")
    Trainer(model, train, val, torch.optim.SGD(model.parameters(), 0.1), save_every).train(3)
    destroy_process_group()


if __name__ == "__main__":
    main(1, 10)
