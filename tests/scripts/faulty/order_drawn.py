import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Pairs(Dataset):
    def __init__(self, pairs):
        random.shuffle(pairs)  # hit: order-per-rank
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, number):
        return torch.tensor(self.pairs[number])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Pairs([(i, 2 * i) for i in range(100)])
    sampler = DistributedSampler(data)
    model = DDP(torch.nn.Linear(2, 1))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in DataLoader(data, 8, sampler=sampler):
            model(batch.float()).sum().backward()
    dist.destroy_process_group()


main()
