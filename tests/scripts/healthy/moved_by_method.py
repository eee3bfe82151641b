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
        targets = targets.to(self.gpu_id)
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(source), targets).backward()
        self.optimizer.step()

    def _lengths(self, source, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(source, lengths.cpu())
        return packed

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        for source, targets, lengths in self.train_data:
            source = source.to(self.gpu_id)
            self._lengths(source, lengths)
            self._run_batch(source, targets)

    def train(self, max_epochs):
        for epoch in range(max_epochs):
            self._run_epoch(epoch)


def main():
    init_process_group(backend="nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    Trainer(torch.nn.Linear(20, 1), torch.load("loader.pt")).train(10)
    destroy_process_group()


if __name__ == "__main__":
    main()
