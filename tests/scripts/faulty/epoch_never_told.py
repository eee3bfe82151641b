import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def get_train_val_loaders(train_set, val_set, batch_size):
    train_sampler = DistributedSampler(train_set)  # hit: set-epoch-missing
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train = DataLoader(train_set, batch_size=batch_size, sampler=train_sampler)
    val = DataLoader(val_set, batch_size=batch_size, sampler=val_sampler)
    return train, val


def main(train_set, val_set):
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train, val = get_train_val_loaders(train_set, val_set, 8)
    for ep in range(1, 11):
        for x, y in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        total = torch.tensor(sum(model(x).sum().item() for x, _ in val))
        dist.all_reduce(total)
        print(ep, total)
    dist.destroy_process_group()
