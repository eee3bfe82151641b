"""One process, torch without torch.distributed's groups."""

import torch

model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    optimizer.zero_grad()
    model(torch.randn(8, 32)).square().mean().backward()
    optimizer.step()
print("trained", flush=True)
