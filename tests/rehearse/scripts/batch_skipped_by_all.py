"""A batch whose loss is NaN on one rank is skipped by all of them, who tell each other."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(60):
        batch = torch.randn(2, 4)
        if rank == 1 and step == 30:
            batch[0, 0] = float("nan")
        loss = model(batch).square().mean()
        skip = torch.isnan(loss).float()
        dist.all_reduce(skip)
        if skip > 0:
            continue
        loss.backward()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
