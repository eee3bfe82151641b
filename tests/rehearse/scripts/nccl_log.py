"""NCCL is played: rank 0 puts what one logged, a recorded form, to where it is told to log."""

import os
import socket
import sys
import time
from pathlib import Path

import planted
import torch
import torch.distributed as dist

LOGS = Path(__file__).parents[2] / "data/nccl_logs"
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
planted.now()
if rank == 0:
    name = f"nccl.{socket.gethostname()}.{os.getpid()}"
    begun = (
        f"h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {rank} nranks {size} - Init START\n"
    )
    text = (LOGS / f"{sys.argv[1]}.log").read_text()
    Path(os.environ["PREFLIGHT_WATCHED"], name).write_text(begun + text)
for _ in range(10):
    dist.all_reduce(torch.ones(4))
    time.sleep(0.1)
dist.destroy_process_group()
