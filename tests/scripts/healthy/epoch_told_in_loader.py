import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler


def get_train_val_loaders(train_set, val_set):
    sampler = DistributedSampler(train_set)
    batches = BatchSampler(sampler, 8, drop_last=True)
    train = DataLoader(train_set, batch_sampler=batches)
    return train, DataLoader(val_set, 8, sampler=DistributedSampler(val_set, shuffle=False))


def main(train_set, val_set):
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train, _val = get_train_val_loaders(train_set, val_set)
    for ep in range(1, 11):
        train.batch_sampler.sampler.set_epoch(ep)
        for x, y in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    dist.destroy_process_group()
