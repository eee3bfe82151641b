"""Rank 1 waits for a program that waits for what never comes; rank 0 is at the barrier"""

import subprocess

import planted
import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 1:
        planted.now()
        subprocess.run(["sh", "-c", "sleep 600; true"], check=True)  # <- here
    dist.barrier()
    dist.destroy_process_group()
