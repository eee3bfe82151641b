"""Sets excepthook, threading.excepthook and a handler of SIGUSR1 and SIGTERM, and needs them."""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

caught = []


def quiet(*_: object) -> None:
    caught.append("a thread")


def noted(*_: object) -> None:
    caught.append("a signal")


sys.excepthook = quiet
threading.excepthook = quiet
signal.signal(signal.SIGUSR1, noted)
dist.init_process_group("gloo")
for step in range(60):
    if step == 10:
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        os.kill(os.getpid(), signal.SIGUSR1)
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
if caught != ["a thread", "a signal"]:
    raise SystemExit(f"the own handlers saw {caught}")
