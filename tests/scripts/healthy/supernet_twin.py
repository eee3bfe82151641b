import torch
import torch.distributed as dist
from torch import nn


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


def validate(model, args, epoch=0):
    model.eval()
    for arch in args.archs:
        with torch.no_grad():
            for image, target in args.val_loader:
                print(model(image, arch).argmax(1).eq(target).sum())


def main(args):
    dist.init_process_group("gloo")
    model = Net()
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(args.start_epoch, args.epochs):
        train_step(model, args.loader, optimizer)
        if args.local_rank == 0:
            print(epoch)
        validate(model, args, epoch=epoch)
    dist.destroy_process_group()
