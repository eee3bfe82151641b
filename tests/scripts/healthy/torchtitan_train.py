import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, config):
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl")
        mesh = init_device_mesh("cuda", (dist.get_world_size(),))
        self.model = nn.Linear(64, 64, device=self.device)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step, self.config = 0, config

    def train_step(self, batch):
        self.optimizer.zero_grad()
        loss = self.model(batch.to(self.device)).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        if self.step % 10 == 0:
            total = loss.detach().clone()
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(self.step, total.item())

    def train(self, batches):
        for batch in batches:
            self.step += 1
            self.train_step(batch)
            if self.step >= self.config.steps:
                break
        if dist.get_rank() == 0:
            print("Sleeping 2 seconds for other ranks to complete")

    def close(self):
        dist.destroy_process_group()


def main(config, batches):
    trainer = Trainer(config)
    try:
        trainer.train(batches)
    finally:
        trainer.close()
