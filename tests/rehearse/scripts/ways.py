"""Starts the ranks of a job in the way that the command's first argument names."""

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable

import torch.multiprocessing


def start(work: Callable[[int], None], size: int) -> int:
    """0 where all ranks ended well. Each has the variables of a launcher but its RANK, which `work`
    is given."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    way = sys.argv[1]
    if way == "mp.spawn":
        torch.multiprocessing.spawn(work, nprocs=size)
        return 0
    if way == "os.fork":
        pids = [os.fork() or sys.exit(work(rank)) for rank in range(size)]
        return max([os.waitpid(pid, 0)[1] for pid in pids])
    context = multiprocessing.get_context(way)
    ranks = [context.Process(target=work, args=(rank,)) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return max(abs(process.exitcode or 0) for process in ranks)
