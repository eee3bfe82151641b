"""Hooks that are registered in each step: `forward` on a layer, `gradient` on a parameter in the
model's forward, `seldom` in each fourth step; healthy: `once`, `removed` in the same step"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1] if len(sys.argv) > 1 else ""
kept: dict[str, torch.Tensor] = {}


def keep(module: nn.Module, given: object, out: torch.Tensor) -> None:  # <- here
    kept["features"] = out.detach()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if HOW == "gradient" and self.training:
            self.head.weight.register_hook(lambda grad: grad.clamp(-1, 1))  # <- or here
        return self.head(self.body(given))


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if HOW == "once":
        model.module.body[1].register_forward_hook(keep)
        for parameter in model.parameters():
            parameter.register_hook(lambda grad: grad.clamp(-1, 1))
    for step in range(60):
        adds = HOW in ("forward", "removed") or (HOW == "seldom" and step % 4 == 0)
        handle = model.module.body[1].register_forward_hook(keep) if adds else None
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        if handle is not None and HOW == "removed":
            handle.remove()
        optimizer.step()
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
