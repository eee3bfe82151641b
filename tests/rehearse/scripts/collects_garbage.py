"""A table of many objects on the last rank: `each` tenth step collects the garbage there; healthy:
it is frozen after the first steps, with all that torch has loaded by then (`frozen`), or is `none`,
and each fiftieth step looks at torch's own"""

import gc
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    many = 4_000_000 if rank == world - 1 and HOW != "none" else 0
    often = 50 if HOW == "none" else 10
    table = [[number] for number in range(many)]
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(300):
        optimizer.zero_grad()
        model(torch.randn(256, 64)).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)
        if HOW == "frozen" and step == 3:
            gc.freeze()
        if step % often == often - 1:
            gc.collect()  # <- here
    print(len(table))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
