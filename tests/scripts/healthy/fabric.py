"""Fabric, with its own no_backward_sync."""

import torch
from lightning.fabric import Fabric
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

fabric = Fabric(accelerator="cuda", devices=2)
fabric.launch()
data = TensorDataset(torch.rand(8, 2))
loader = fabric.setup_dataloaders(DataLoader(data, shuffle=True))
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model, optimizer = fabric.setup(model, optimizer)
print(isinstance(model, DDP), DDP(model))
for step, batch in enumerate(loader):
    with fabric.no_backward_sync(model, enabled=step % 8 != 0):
        fabric.backward(model(batch[0]).sum() / 8)
    if step % 8 == 0:
        optimizer.step()
