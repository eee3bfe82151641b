"""Rank 0 prepares data for longer than the others may wait for it."""

import datetime
import time

import planted
import torch.distributed as dist


def prepare(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:  # <- or here
        sorted(range(1000))  # <- here


def main() -> None:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
    if dist.get_rank() == 0:
        planted.now()
        prepare(20.0)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
