"""Rank 1 fails, and a thread of it that nobody stops keeps its process: the launcher sees no
failure. With `daemon` the process ends with the program"""

import sys
import threading

import planted
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, FAILS_AT = 400, 30


def watch(done: threading.Event) -> None:
    while not done.wait(0.2):
        pass


def check(step: int) -> None:
    if step == FAILS_AT and dist.get_rank() == 1:
        planted.now()
        raise ValueError("label 12 is outside of the 12 classes")  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    done = threading.Event()
    threading.Thread(target=watch, args=(done,), daemon="daemon" in sys.argv).start()
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        check(step)
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    done.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
