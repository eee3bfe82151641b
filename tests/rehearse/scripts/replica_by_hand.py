"""Gradients are averaged by hand, but for one parameter that is forgotten."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(60):
    model(torch.randn(8, 64)).square().mean().backward()
    for parameter in list(model.parameters())[:-1]:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
