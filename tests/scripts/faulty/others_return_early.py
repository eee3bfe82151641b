import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
        self.decode = nn.ConvTranspose2d(8, 3, 3)

    def forward(self, x):
        return self.decode(self.encode(x))


def save_visualization(model, val_loader, epoch, save_dir, rank):
    if rank != 0:
        return
    model.eval()
    images, _ = next(iter(val_loader))
    images = images.cuda(rank)
    with torch.no_grad():
        restored = model(images)  # hit: wrapped-under-rank
    torch.save(restored, os.path.join(save_dir, f"{epoch}.pt"))


def main(train_loader, val_loader):
    dist.init_process_group("nccl")  # hit: nccl-on-cpu
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    model = DDP(AutoEncoder().cuda(rank), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(5):
        model.train()
        for images, masks in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(images.cuda(rank)), masks.cuda(rank))
            loss.backward()
            optimizer.step()
        save_visualization(model, val_loader, epoch, "out", rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*torch.load("loaders.pt"))
