"""Rank 0 asks a server that took the connection and never answers; the others are at the barrier"""

import urllib.request

import elsewhere
import planted
import torch
import torch.distributed as dist


def ask(port: int) -> bytes:
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/judge").read()  # <- here


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 0:
        planted.now()
        ask(elsewhere.serve("silent", 0.0))
    dist.barrier()
    dist.destroy_process_group()
