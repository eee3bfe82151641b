"""Rank 1 counts the tags of what it receives otherwise; with `healthy` both take the same, and
receive in another order than is sent."""

import sys

import planted
import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank, parts = dist.get_rank(), [torch.ones(16), torch.ones(16)]
    for step in range(30):
        late = step >= 20 and "healthy" not in sys.argv
        if rank == 0:
            sent = [dist.isend(part, 1, tag=n) for n, part in enumerate(parts)]
            sent[0].wait()  # <- here
        elif rank == 1:
            if step == 20:
                planted.now()
            for n in (1, 0):
                dist.recv(parts[n], 0, tag=n + 5 * late)  # <- or here
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
