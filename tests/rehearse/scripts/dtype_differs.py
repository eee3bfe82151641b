"""Rank 1 counts in int32 where the others do in float32: nothing hangs, the sums are garbage."""

import planted
import torch
import torch.distributed as dist


def count(rank: int, step: int) -> torch.Tensor:
    kind = torch.int32 if rank == 1 else torch.float32
    return torch.full((16,), step, dtype=kind)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(400):
        correct = count(rank, step)
        if step == 0 and rank == 1:
            planted.now()
        dist.all_reduce(correct)  # <- here
        torch.randn(200, 200).square().sum()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
