import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, train_in):
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.model = DDP(model.to(self.gpu_id), device_ids=[self.gpu_id])
        self.train_in = train_in
        self.loss = nn.BCELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run(self):
        for ids, labels in self.train_in:
            ids.to(self.gpu_id)
            labels.to(self.gpu_id)  # hit: batch-not-moved
            out = self.model(ids)
            self.optimizer.zero_grad()
            self.loss(out, labels).backward()
            self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("nccl")  # hit: nccl-on-cpu
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    Trainer(nn.Linear(8, 2), torch.load("batches.pt")).run()
    dist.destroy_process_group()
