"""Rank 0 downloads while the others wait: the two halves of one meeting, in three ways."""

from contextlib import contextmanager

import torch.distributed as dist
from data import prepare


def load(args):
    if args.local_rank not in [-1, 0]:
        dist.barrier()
    data = prepare(args)
    if args.local_rank == 0:
        dist.barrier()
    return data


@contextmanager
def zero_first(rank: int):
    if rank not in (-1, 0):
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


class FirstThenRest:
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __enter__(self):
        if self.rank > 0:
            dist.barrier()

    def __exit__(self, *error):
        if self.rank == 0:
            dist.barrier()


def also(args):
    if dist.get_rank() == 0:
        prepare(args)
        dist.barrier()
    else:
        dist.barrier()
    return prepare(args)
