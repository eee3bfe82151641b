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


def build(dataset, split):
    training = split == "train"
    sampler = DistributedSampler(dataset, shuffle=training)
    return DataLoader(dataset, 8, sampler=sampler, drop_last=training)


def main(args, sets):
    dist.init_process_group("gloo")
    train, _val = build(sets[0], "train"), build(sets[1], "val")
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(args.epochs):
        train.sampler.set_epoch(epoch)
        train_step(model, train, optimizer)
    dist.destroy_process_group()
