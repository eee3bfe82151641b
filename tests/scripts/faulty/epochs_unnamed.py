import torch
import torch.distributed as dist
import torch.utils.data.distributed as distributed_data
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def train_step(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def make(cfg, train_dataset):
    sampler = distributed_data.DistributedSampler(train_dataset)  # hit: set-epoch-missing
    return DataLoader(train_dataset, cfg.batch, sampler=sampler)


def main(cfg, train_dataset):
    dist.init_process_group("gloo")
    loader = make(cfg, train_dataset)
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(cfg.num_epochs):
        train_step(model, loader, optimizer)
    dist.destroy_process_group()
