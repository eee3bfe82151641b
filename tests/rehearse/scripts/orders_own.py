"""Samplers with seeds that differ where they may: without a shuffle, all of the data on each rank,
a dataset of each rank's own, pairs of ranks that take one part; rank 0 tries a batch before."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world, mode = dist.get_rank(), dist.get_world_size(), sys.argv[1]
length, parts, part, seed, shuffle = 128 * world, world, rank, 5, True
if mode == "in-order":
    seed, shuffle = rank, False
elif mode == "each-all":
    length, parts, part, seed = 128, 1, 0, rank
elif mode == "each-its-own":
    length, seed = 128 * world - rank, rank
elif mode == "pairs":
    length, parts, part, seed = 256, 2, rank // 2, rank % 2
corpus = TensorDataset(torch.randn(length, 6))
sampler = DistributedSampler(corpus, parts, part, shuffle=shuffle, seed=seed)
batches = DataLoader(corpus, batch_size=8, sampler=sampler)
model = DDP(torch.nn.Linear(6, 3))
optimizer = torch.optim.Adam(model.parameters())
if rank == 0:
    sampler.set_epoch(77)
    print(next(iter(batches))[0].shape)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (words,) in batches:
        model(words).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
