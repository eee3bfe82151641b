"""A mean over the ranks for a log, in a process group that is made for it in each step; with `once`
it is made before the loop"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 60


def mean(value: float, group: dist.ProcessGroup | None) -> float:
    if group is None:
        group = dist.new_group(list(range(dist.get_world_size())))  # <- here
    told = torch.tensor([value])
    dist.all_reduce(told, group=group)
    return float(told) / dist.get_world_size(group)


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    kept = dist.new_group([0, 1]) if "once" in sys.argv else None
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        optimizer.step()
        mean(loss.item(), kept)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
