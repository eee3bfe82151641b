"""Every way of naming the collective and the rank."""

import os

import torch
from torch import distributed
from torch.distributed import barrier as wait
from torch.distributed import get_rank

rank = int(os.environ["RANK"])
master = rank == 0


def first(accelerator) -> None:
    if not get_rank():
        wait()  # hit: collective-under-rank
    if accelerator.is_main_process:
        accelerator.wait_for_everyone()  # hit: collective-under-rank


def second(x: torch.Tensor) -> None:
    if master:
        distributed.broadcast(x, 0)  # hit: collective-under-rank
    if os.environ.get("LOCAL_RANK") == "0":
        torch.distributed.barrier()  # hit: collective-under-rank
    y = distributed.all_gather([x], x) if rank % 2 else None  # hit: collective-under-rank
    print(y)
