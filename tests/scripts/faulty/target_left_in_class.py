import os

import torch
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, train_data):
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.model = DDP(model.to(self.gpu_id), device_ids=[self.gpu_id])
        self.train_data = train_data
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.cross_entropy(output, targets)
        loss.backward()
        self.optimizer.step()

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        for source, targets in self.train_data:
            source = source.to(self.gpu_id)
            self._run_batch(source, targets)  # hit: batch-not-moved

    def train(self, max_epochs):
        for epoch in range(max_epochs):
            self._run_epoch(epoch)


def main():
    init_process_group(backend="nccl")  # hit: nccl-on-cpu
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    Trainer(torch.nn.Linear(20, 1), torch.load("loader.pt")).train(10)
    destroy_process_group()


if __name__ == "__main__":
    main()
