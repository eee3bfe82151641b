"""Each rank broadcasts from another one: with `counts` rank 1 has one item less to share than the
others, with `own` each takes its own rank for the source; with `healthy` all have as many."""

import sys

import planted
import torch
import torch.distributed as dist


def share(items: list[torch.Tensor]) -> None:
    for src in range(dist.get_world_size()):
        for item in items:
            dist.broadcast(item, src=src)  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    items = [torch.full((8,), float(rank)) for _ in range(4)]
    for step in range(30):
        if step == 20 and "healthy" not in sys.argv:
            planted.now()
            if "own" in sys.argv:
                dist.broadcast(items[0], src=rank)  # <- or here
            if rank == 1:
                items.pop()
        share(items)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
