"""Rank 0 has its answers judged by a service of the same machine, over a Unix socket, a token a
second; the others are at the barrier. After so many tokens the service is done, or says no more."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import planted
import torch
import torch.distributed as dist

SERVICE = """
import socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
caller, _ = server.accept()
for number in range(int(sys.argv[2])):
    time.sleep(1)
    caller.sendall(b"token\\n")
if sys.argv[3] == "silent":
    time.sleep(40)
"""


def serve(folder: str) -> Path:
    """Where it listens. It is no child of ours, and ends by itself."""
    path = Path(folder, "judge")
    if os.fork() == 0:
        subprocess.Popen(
            [sys.executable, "-I", "-c", SERVICE, str(path), *sys.argv[1:]],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os._exit(0)
    os.wait()
    return path


def judged(path: Path) -> int:
    with socket.socket(socket.AF_UNIX) as service:
        while service.connect_ex(str(path)):
            pass
        planted.now()
        return sum(1 for _ in service.makefile())  # <- here


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            judged(serve(folder))
    dist.barrier()
    dist.destroy_process_group()
