"""Rank 2 makes the groups in another order than the others, as a dict or a set of its own has it"""

import time

import planted
import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    names = ["tensor", "data"]
    if dist.get_rank() == 2:
        planted.now()
        names.reverse()
    ranks = {"tensor": [0, 2], "data": [1, 2]}
    groups = {}
    for name in names:
        groups[name] = dist.new_group(ranks[name])  # <- here
    for _ in range(20):
        for name, group in groups.items():
            if dist.get_rank() in ranks[name]:
                dist.all_reduce(torch.ones(4), group=group)  # <- or here
        time.sleep(0.1)
    dist.barrier()
    dist.destroy_process_group()
