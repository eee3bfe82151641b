"""A translator whose ranks shuffle one corpus, each in its own order: by its pid, by an epoch that
only rank 0 sets, or on some ranks alone."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, mode = dist.get_rank(), sys.argv[1]
torch.manual_seed(3)
corpus = TensorDataset(torch.randint(0, 50, (240, 12)))
seed = os.getpid() if mode == "seed" else 5
shuffled = rank > 0 if mode == "shuffle" else True
sampler = DistributedSampler(corpus, shuffle=shuffled, seed=seed)
batches = DataLoader(corpus, batch_size=8, sampler=sampler, num_workers=1 if mode == "epoch" else 0)
net = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Flatten(), torch.nn.Linear(96, 2))
model = DDP(net)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    if mode != "epoch" or rank == 0:
        sampler.set_epoch(epoch)
    for (words,) in batches:  # <- here
        model(words).logsumexp(1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
