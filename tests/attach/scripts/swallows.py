"""Rank 1 skips a step for an exception that it swallows, and is at the end one step before all."""

import planted
import torch
import torch.distributed as dist


def loss_of(rank: int, step: int) -> torch.Tensor:
    if rank == 1 and step == 6:
        raise ValueError("a bad sample")
    return torch.ones(4)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(20):
        try:
            loss = loss_of(rank, step)
        except ValueError:
            planted.now()
            continue
        dist.all_reduce(loss)
    dist.broadcast(torch.ones(1), src=0)  # <- here
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
