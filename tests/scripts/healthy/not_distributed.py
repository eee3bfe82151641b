"""No torch.distributed at all: names that only look like it."""

import numpy as np
from mylib import all_reduce, barrier


def main(rank: int, pool) -> None:
    if rank == 0:
        barrier()
        all_reduce(np.zeros(3), async_op=True)
        pool.broadcast("x")
        np.add.reduce([1, 2])
