"""Gradients are averaged by hand, but each rank starts from weights of its own; `ensemble`: they
are meant to, and average what the models predict."""

import sys

import planted
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
planted.now()
for _ in range(60):
    predicted = model(torch.randn(512, 32))
    optimizer.zero_grad()
    predicted.square().mean().backward()
    if "ensemble" in sys.argv:
        dist.all_reduce(predicted.detach())
    else:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    optimizer.step()
dist.destroy_process_group()
