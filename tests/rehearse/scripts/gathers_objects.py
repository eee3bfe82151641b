"""Predictions that all ranks exchange after each step: as `objects`; healthy: as `tensors`, as
objects `seldom`, or a `small` one in each step"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


def exchange(predictions: torch.Tensor) -> float:
    if HOW == "tensors":
        total = predictions.sum()
        dist.all_reduce(total)
        return float(total)
    given: object = [row.clone() for row in predictions]
    if HOW == "small":
        given = float(predictions[0, 0])
    found: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(found, given)  # <- here
    return float(len(found))


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(300):
        output = model(torch.randn(256, 64))
        optimizer.zero_grad()
        output.square().mean().backward()
        optimizer.step()
        if HOW != "seldom" or step % 20 == 0:
            exchange(output.detach())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
