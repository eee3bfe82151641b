"""Rank 2 of 4 takes another branch: broadcast where the others call all_reduce."""

import planted
import torch
import torch.distributed as dist


def average(values: torch.Tensor) -> None:
    dist.all_reduce(values)
    values /= dist.get_world_size()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    values = torch.full((8,), float(rank))
    for step in range(50):
        if rank == 2 and step == 7:
            planted.now()
            dist.broadcast(values, src=0)  # <- here
        else:
            average(values)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
