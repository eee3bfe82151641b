"""Rank 0 writes a checkpoint, all read it after the barrier; one rank is a bit late."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder, src=0)
path = os.path.join(folder[0], "last.pt")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
for step in range(30):
    model(torch.randn(2, 64)).mean().backward()
    if step % 10 == 9:
        if rank == 0:
            torch.save(model.module.state_dict(), path)
            time.sleep(0.5)
        dist.barrier()
        model.module.load_state_dict(torch.load(path))
        dist.barrier()
if rank == 0:
    os.unlink(path)
    os.rmdir(folder[0])
dist.destroy_process_group()
