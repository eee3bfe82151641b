"""One gradient for all ranks, and steps that are not the same: `skips` where a rank's own loss is
too high, `loads` the optimizer's state on rank 0 alone; healthy: `agree` on what is too high,
`both` load it, `evaluates` on rank 0 through the wrapped model"""

import sys

import planted
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    rank = dist.get_rank()
    for step in range(steps):
        given = torch.randn(6, 12)
        if rank == 1 and step == steps // 2:
            given = given * 300
        loss = model(given).square().mean()
        optimizer.zero_grad()
        loss.backward()
        high = torch.tensor(float(loss.item() > 40))
        if HOW == "agree":
            dist.all_reduce(high)
        if HOW not in ("skips", "agree") or not high:
            optimizer.step()
        if HOW == "evaluates" and rank == 0 and step == steps // 2:
            for _ in range(5):
                model(torch.randn(6, 12))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(100 + rank)
    planted.now()
    train(model, optimizer, 40)
    saved = optimizer.state_dict()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if HOW != "loads" or rank == 0:
        optimizer.load_state_dict(saved)
    train(model, optimizer, 40)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
