"""Rank 2 still counts its tokens when the others have waited long enough at a monitored barrier"""

import time
from datetime import timedelta

import planted
import torch.distributed as dist


def count() -> int:
    planted.now()
    until = time.monotonic() + 12
    words = 0
    while time.monotonic() < until:  # <- or here
        words += 1  # <- here
    return words


dist.init_process_group("gloo")
if dist.get_rank() == 2:
    count()  # <- or here
dist.monitored_barrier(timeout=timedelta(seconds=4))
dist.destroy_process_group()
