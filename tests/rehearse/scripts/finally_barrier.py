"""Rank 1 fails, and on its way out it comes to a barrier in a finally; rank 0 still trains."""

import planted
import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    try:
        for step in range(50):
            if dist.get_rank() == 1 and step == 9:
                planted.now()
                raise KeyError("labels")  # <- here
            dist.all_reduce(torch.ones(4))
    finally:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
