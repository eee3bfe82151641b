"""Each half of the ranks makes its own group and not that of the other one: Gloo connects ranks of
both, since each group is the first of its ranks; `local` tells torch so"""

import sys
import time

import planted
import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine = [0, 1] if rank < 2 else [2, 3]
    local = "local" in sys.argv
    if not local:
        planted.now()
    half = dist.new_group(mine, use_local_synchronization=local)  # <- here
    for _ in range(20):
        dist.all_reduce(torch.ones(4), group=half)
        time.sleep(0.1)
    dist.barrier()
    dist.destroy_process_group()
