import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train_step(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


dist.init_process_group("gloo")
rank = dist.get_rank()

train_set, val_set = torch.load("sets.pt")
sampler = DistributedSampler(train_set)
loader = DataLoader(train_set, 8, sampler=sampler)
val_loader = DataLoader(val_set, 8, sampler=DistributedSampler(val_set, shuffle=False))
model = DDP(nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
for epoch in range(100):
    sampler.set_epoch(epoch)
    train_step(model, loader, optimizer)
    with torch.no_grad():
        val_loss = sum(nn.functional.cross_entropy(model(x), y) for x, y in val_loader)

    scheduler.step(val_loss)  # hit: rate-per-rank
    if optimizer.param_groups[0]["lr"] < 1e-6:
        break

dist.destroy_process_group()
