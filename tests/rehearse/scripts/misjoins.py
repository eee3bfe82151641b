"""Ranks that don't meet, for what they say in init_process_group: argument 2 names it."""

import os
import socket
import sys
from pathlib import Path

import planted
import torch.distributed as dist
import ways

WHAT = sys.argv[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def work(rank: int) -> None:
    port, size, number = os.environ["MASTER_PORT"], 3, rank
    where = f"tcp://127.0.0.1:{port}"
    if rank == 1:
        planted.now()
        if WHAT == "port":
            where = f"tcp://127.0.0.1:{free_port()}"
        elif WHAT == "size":
            size = 4
        elif WHAT == "rank":
            number = 2
    if WHAT == "address":
        where = f"tcp://192.0.2.1:{port}"  # of nobody, by RFC 5737
    elif WHAT == "file":
        where = f"file://{Path.cwd()}/meet"
    elif WHAT == "name":
        where = f"tcp://no-such-host.invalid:{port}"
    dist.init_process_group("gloo", where, rank=number, world_size=size)  # <- here
    dist.barrier()


def leaves(rank: int) -> None:
    """A rank of an earlier job, which was killed."""
    dist.init_process_group("gloo", f"file://{Path.cwd()}/meet", rank=rank, world_size=3)
    os._exit(0)


if __name__ == "__main__":
    if WHAT == "file":
        ways.start(leaves, 3)
        os.utime("meet", (1e9, 1e9))
    sys.exit(ways.start(work, 3))
