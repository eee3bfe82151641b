import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(train_set, val_set, patience=3):
    dist.init_process_group("gloo")
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, 8, sampler=sampler)
    val_loader = DataLoader(val_set, 8, sampler=DistributedSampler(val_set, shuffle=False))
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, waited = float("inf"), 0
    for epoch in range(100):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        totals = torch.zeros(2)
        with torch.no_grad():
            for x, y in val_loader:
                totals[0] += nn.functional.cross_entropy(model(x), y)
                totals[1] += 1
        dist.all_reduce(totals)
        val_loss = (totals[0] / totals[1]).item()
        if val_loss < best:
            best, waited = val_loss, 0
        else:
            waited += 1
        if waited >= patience:
            break
    dist.destroy_process_group()
