"""Rank 0 tokenises from a slow disk before all go on: it takes long, but is not stuck."""

import sys
import time

import planted
import torch
import torch.distributed as dist


def read() -> str:
    time.sleep(0.005)  # <- or here
    return "to be or not to be " * 10


def tokenise(seconds: float) -> int:
    until, words = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        text = read()
        for _ in range(2000):
            words += len(text.split())  # <- here
    return words


def main() -> None:
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 0:
        planted.now()
        tokenise(float(sys.argv[1]))
    dist.barrier()
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
