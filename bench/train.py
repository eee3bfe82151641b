"""A healthy script for the overhead of a rehearsal: DDP on the CPU, as much work in every run. Rank
0 prints the CPU seconds of all ranks, from the first step on."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS = 400

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(STEPS * 64, 512)), batch_size=64)
began = time.process_time()
for (batch,) in loader:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
spent = torch.tensor([time.process_time() - began])
dist.all_reduce(spent)
if dist.get_rank() == 0:
    print(f"cpu {spent.item():.4f}", flush=True)
dist.destroy_process_group()
