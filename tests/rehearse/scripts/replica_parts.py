"""Each rank has its part of a layer (tensor parallel): same shapes, other weights."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
part = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
for _ in range(60):
    out = part(torch.ones(32, 32))
    dist.all_reduce(out.detach())
    out.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
