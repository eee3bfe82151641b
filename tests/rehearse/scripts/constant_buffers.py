"""Causal masks of 6 layers are buffers, 28 MiB of them, which DDP broadcasts before each forward:
`all`. With broadcast_buffers=False it does not: `none`."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LONG, WIDE, LAYERS = 1100, 32, 6


class Attention(torch.nn.Module):
    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(WIDE, 3 * WIDE)
        self.register_buffer("mask", torch.full((LONG, LONG), -1e9).triu(1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        long = x.shape[0]
        return x + torch.softmax(q @ k.T + self.mask[:long, :long], -1) @ v


def main() -> None:
    dist.init_process_group("gloo")
    layers = [Attention() for _ in range(LAYERS)]
    shares = sys.argv[1] == "all"
    whole = torch.nn.Sequential(*layers)
    model = DistributedDataParallel(whole, broadcast_buffers=shares)  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(64, WIDE)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
