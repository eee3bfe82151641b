import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main(rank, world_size, loader, val_loader, early_stopping, device):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DDP(nn.Linear(8, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(100):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        if rank == 0:
            val_loss = sum(model.module(x.to(device)).sum().item() for x, _ in val_loader)
            early_stopping(val_loss)
        if world_size > 1:
            stopping = rank == 0 and early_stopping.early_stop
            stop_signal = torch.tensor(1.0 if stopping else 0.0, device=device)
            dist.broadcast(stop_signal, src=0)
            if stop_signal.item() == 1.0:
                if rank == 0:
                    print("Early stopping triggered.")
                break
        else:
            if early_stopping.early_stop:
                break
    dist.destroy_process_group()
