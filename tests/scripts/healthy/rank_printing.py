"""A great deal under tests of the rank, and nothing that others have a part in."""

import logging
import os
import sys

import torch
import torch.distributed as dist

log = logging.getLogger(__name__)


def setup_for_distributed(is_master: bool) -> None:
    import builtins

    plain = builtins.print

    def print(*args, force: bool = False, **kwargs) -> None:
        if is_master or force:
            plain(*args, **kwargs)

    builtins.print = print


def save(model, rank: int) -> None:
    if rank != 0:
        return
    torch.save(model, "x.pt")


def main(model, args) -> None:
    rank = int(os.environ.get("RANK", "0"))
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        log.info("world %d", dist.get_world_size())
    dist.barrier()
    for step in range(args.steps):
        loss = model(step)
        dist.all_reduce(loss)
        if rank == 0:
            if step % 10:
                continue
            print(step, loss.item())
    save(model, rank)
    dist.barrier()
    if rank == 0:
        sys.exit(0)
