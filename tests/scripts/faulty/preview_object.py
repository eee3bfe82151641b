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


class Preview:
    def __init__(self, image):
        self.image = image

    def __call__(self, model, epoch):
        if dist.get_rank() == 0:
            with torch.no_grad():
                torch.save(model(self.image), f"{epoch}.pt")  # hit: wrapped-under-rank


dist.init_process_group("gloo")
rank = dist.get_rank()

model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters())
preview = Preview(torch.randn(1, 3, 8, 8))
for epoch in range(10):
    train_step(model, torch.load("loader.pt"), optimizer)
    preview(model, epoch)

dist.destroy_process_group()
