"""An example of transformers: the first process makes the cache."""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def cached(args, evaluate: bool = False):
    if args.local_rank not in [-1, 0] and not evaluate:
        torch.distributed.barrier()
    data = TensorDataset(torch.load("cache.pt"))
    if args.local_rank == 0 and not evaluate:
        torch.distributed.barrier()
    return data


def train(args, model):
    data = cached(args)
    sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=args.size)
    if args.local_rank != -1:
        model = DistributedDataParallel(model, device_ids=[args.local_rank])
    for epoch in range(args.epochs):
        if isinstance(sampler, DistributedSampler):
            sampler.set_epoch(epoch)
        for batch in loader:
            model(batch)
