"""Rank 0 logs the mean loss and asks the others for it; they know nothing of that."""

import planted
import torch
import torch.distributed as dist


def log(loss: torch.Tensor) -> None:
    mean = loss.detach().clone()
    dist.all_reduce(mean)  # <- here
    print(f"loss {mean.item() / dist.get_world_size():.3f}", flush=True)


dist.init_process_group("gloo")
model = torch.nn.Linear(32, 1)
for step in range(50):
    loss = model(torch.randn(4, 32)).square().mean()
    loss.backward()
    if dist.get_rank() == 0 and step == 10:
        planted.now()
        log(loss)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
dist.destroy_process_group()
