"""Prints a lot to both streams, with lines that never end and bytes that are no text."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(40):
    dist.all_reduce(torch.ones(4))
    if rank == 0:
        for line in range(500):
            print(f"step {step} line {line} " + "x" * 60)
        sys.stderr.write(f"\rstep {step}" + " " * 2000)
if rank == 0:
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\xff\xfe\x00 end")
    sys.stdout.flush()
dist.destroy_process_group()
