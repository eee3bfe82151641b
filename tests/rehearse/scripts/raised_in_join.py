"""Uneven inputs under Join, which is right; then rank 1 fails in its loss."""

import planted
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2))
with Join([model]):
    for step in range(50 + rank * 5):
        scores = model(torch.randn(3, 4))
        wanted = torch.tensor([0, 1, 1])
        if rank == 1 and step == 20:
            planted.now()
            wanted = torch.tensor([0, 1, 2])
        torch.nn.functional.cross_entropy(scores, wanted).backward()  # <- here
dist.destroy_process_group()
