"""Rank 1 skips a batch whose loss is NaN, and the others wait for its gradients.

With `clean` each loss is a number, and only the text shows what may happen.
"""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(60):
        batch = torch.randn(2, 4)
        if rank == 1 and step == 30 and "clean" not in sys.argv:
            batch[0, 0] = float("nan")
            planted.now()
        loss = model(batch).square().mean()
        if torch.isnan(loss):
            continue  # <- or here
        loss.backward()  # <- here
    dist.barrier()  # <- or here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
