import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train_epoch(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def main(loader, val_loader, patience=3):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, counter, early_stop = float("inf"), 0, False
    for epoch in range(100):
        loader.sampler.set_epoch(epoch)
        train_epoch(model, loader, optimizer)
        dist.barrier()
        if rank == 0:
            val_loss = sum(model.module(x).sum().item() for x, _ in val_loader)
            if val_loss < best:
                best, counter = val_loss, 0
                torch.save(model.module.state_dict(), "best.pt")
            else:
                counter += 1
                if counter >= patience:
                    early_stop = True
        if early_stop:
            break  # hit: early-stop-per-rank
    dist.destroy_process_group()
