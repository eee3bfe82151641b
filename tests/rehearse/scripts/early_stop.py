"""Every rank looks at its own loss and stops by itself: rank 0 does, and waits at the barrier."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(300):
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward()  # <- or here
        patience = loss.item() * 0 + step
        if rank == 0 and patience > 8:
            planted.now()
            break
    dist.barrier()  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
