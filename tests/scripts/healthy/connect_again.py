"""Whoever can't connect tries again: no collective yet."""

import time

import torch.distributed as dist


def join() -> None:
    for _ in range(10):
        try:
            dist.init_process_group("gloo")
            return
        except RuntimeError:
            time.sleep(1.0)
