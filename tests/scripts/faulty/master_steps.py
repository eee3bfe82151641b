import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
        self.register_buffer("freqs", torch.arange(8))

    def forward(self, x):
        return self.body(x)


def train_step(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


@torch.no_grad()
def val_step(model, loader):
    model.eval()
    return sum(model(x).sum().item() for x, _ in loader)


dist.init_process_group("gloo")
rank = dist.get_rank()

is_master = rank == 0
train_loader, val_loader = torch.load("loaders.pt")
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters())
for i in range(100):
    train_step(model, train_loader, optimizer)
    if is_master:
        val_loss = val_step(model, val_loader)  # hit: wrapped-under-rank
        print(i, val_loss)

dist.destroy_process_group()
