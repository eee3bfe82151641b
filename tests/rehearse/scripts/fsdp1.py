"""The older FSDP on CPU: each rank has a part of every parameter, as a plain tensor."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(7)
layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
model = FullyShardedDataParallel(layers, use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(40):
    model(torch.randn(4, 32)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
