"""Pairs of views, contrasted with those of all ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def from_all(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())  # hit: gather-without-gradient
    return torch.cat(parts, dim=0)


class Contrast(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        first, second = from_all(one), from_all(two)
        right = torch.arange(len(one)) + dist.get_rank() * len(one)
        there = F.cross_entropy(one @ second.T / self.temperature, right)
        return there + F.cross_entropy(torch.matmul(two, first.t()) / self.temperature, right)


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(64, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    contrast = Contrast(0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(100):
        x = torch.randn(16, 64)
        one, two = (F.normalize(model(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
        loss = contrast(one, two)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
