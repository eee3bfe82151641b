"""Rank 0 polls by HTTP whether a model elsewhere is ready, a millisecond in each second; the others
are at the barrier. `ready`: it becomes so after 14 s. `gone`: nobody is there any more; `file`: it
waits for a file that nobody writes. In these two a thread reports to a service all the time."""

import os
import sys
import threading
import time
import urllib.error
import urllib.request

import elsewhere
import planted
import torch
import torch.distributed as dist


def answer(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready") as told:
            return str(told.read())
    except urllib.error.URLError:
        return ""


def report(port: int) -> None:
    while True:
        answer(port)
        time.sleep(0.7)


def poll(port: int) -> None:
    until = time.monotonic() + 14
    while not (answer(port) and time.monotonic() > until):
        time.sleep(1)  # <- here


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(1)  # <- or here


if __name__ == "__main__":
    how = sys.argv[1]
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 0:
        port = elsewhere.serve("answers", 0.0)
        if how == "ready":
            poll(port)
        threading.Thread(target=report, args=(port,), daemon=True).start()
        planted.now()
        if how == "gone":
            poll(1)
        elif how == "file":
            wait_for("/nowhere/ready")
    dist.barrier()
    dist.destroy_process_group()
