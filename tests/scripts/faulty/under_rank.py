"""A sum on rank 0 alone, and a group that only one rank makes."""

import torch
import torch.distributed as dist


def log(loss: torch.Tensor, rank: int) -> None:
    if rank == 0:
        dist.all_reduce(loss)  # hit: collective-under-rank
        print(loss.item() / dist.get_world_size())


def groups(args) -> None:
    if args.local_rank in (-1, 0) and args.verbose:
        dist.new_group([0, 1])  # hit: collective-under-rank
    else:
        print("no group")
