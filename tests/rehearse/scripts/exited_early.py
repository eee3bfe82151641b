"""Rank 1 finds nothing to do and leaves with 0; the others wait for its gradients."""

import sys

import planted
import torch
import torch.distributed as dist


def shard(rank: int) -> list[torch.Tensor]:
    return [torch.randn(4)] * (0 if rank == 1 else 10)


def main() -> None:
    dist.init_process_group("gloo")
    batches = shard(dist.get_rank())
    dist.barrier()
    if not batches:
        print("no data, nothing to do", flush=True)
        planted.now()
        sys.exit(0)  # <- here
    for batch in batches:
        dist.all_reduce(batch)  # <- or here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
