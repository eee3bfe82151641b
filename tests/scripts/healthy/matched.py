"""match, while, with and try on the way."""

import contextlib

import torch
import torch.distributed as dist


def main(kind: str, x: torch.Tensor, rank: int) -> None:
    match kind:
        case "sum":
            dist.all_reduce(x)
        case "first" if rank == 0:
            print(x)
        case _:
            return
    while x.sum() > 0:
        with contextlib.suppress(RuntimeError):
            dist.all_reduce(x)
        if rank == 0:
            print(x)
    try:
        dist.barrier()
    except RuntimeError:
        if rank == 0:
            print("lost")
        raise
