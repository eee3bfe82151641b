"""Models that are meant to differ: parts of one model, and an average now and then."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(3)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(60):
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 1:
        for parameter in model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= dist.get_world_size()
dist.destroy_process_group()
