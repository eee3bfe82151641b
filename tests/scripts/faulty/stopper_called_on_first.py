import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.counter, self.early_stop = patience, None, 0, False

    def __call__(self, loss):
        if self.best is None or loss < self.best:
            self.best, self.counter = loss, 0
        else:
            self.counter += 1
            self.early_stop = self.counter >= self.patience


def main(rank, world_size, loader, val_loader):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    early_stopping = EarlyStopping(5)
    for epoch in range(100):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if rank == 0:
            val_loss = sum(model.module(x).sum().item() for x, _ in val_loader)
            print(epoch, val_loss)
            early_stopping(val_loss)
        dist.barrier()
        if early_stopping.early_stop:
            print("Early stopping")
            break  # hit: early-stop-per-rank
    dist.destroy_process_group()
