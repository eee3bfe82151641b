"""Rank 1 of 3 takes 0.2 s longer for each step, and everybody waits for it. The number of steps may
be given; with `turns` another rank is slow in each, and with `all` all are. With `seldom` rank 1
takes 1 s longer for each 8th step, as for a checkpoint, and all take 30 ms for each; with
`alike` all of them do."""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def throttled(rank: int, step: int) -> None:
    if sys.argv[-1] in ("seldom", "alike"):
        time.sleep(0.03)
        if step % 8 == 7 and (rank == 1 or sys.argv[-1] == "alike"):
            time.sleep(1.0)  # <- here
        return
    slow = {"turns": step % 3, "all": rank}.get(sys.argv[-1], 1)
    if rank == slow:
        time.sleep(0.2)  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 60):
        loss = model(torch.randn(8, 16)).mean()
        throttled(rank, step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
