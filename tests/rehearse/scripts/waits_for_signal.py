"""Trains until it is told to stop, and then saves first."""

import os
import signal
import sys
import time
from types import FrameType

import torch
import torch.distributed as dist


def stop(number: int, frame: FrameType | None) -> None:
    if os.environ["RANK"] == "0":
        print(f"saved on {signal.Signals(number).name}", flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
dist.init_process_group("gloo")
for step in range(2000):
    dist.all_reduce(torch.ones(4))
    if step == 10 and dist.get_rank() == 0:
        print("training", flush=True)
    time.sleep(0.05)
