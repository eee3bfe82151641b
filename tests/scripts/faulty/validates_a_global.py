import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet18

dist.init_process_group("nccl")  # hit: nccl-on-cpu
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
model = DDP(resnet18().to(device), device_ids=[local_rank])
train_loader, val_loader = torch.load("loaders.pt")
optimizer = torch.optim.AdamW(model.parameters())


def validate():
    model.eval()
    total = 0.0
    with torch.no_grad():
        for batch in val_loader:
            total += model(batch["image"].to(device)).sum().item()
    return total


for epoch in range(3):
    model.train()
    for batch in train_loader:
        optimizer.zero_grad()
        loss = model(batch["image"].to(device)).mean()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        val_loss = validate()  # hit: wrapped-under-rank
        print(epoch, val_loss)
dist.destroy_process_group()
