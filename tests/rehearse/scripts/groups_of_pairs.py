"""Rank 1 makes the groups of its rows after those of its columns, the others before: each group of
two waits for the wrong member"""

import sys

import planted
import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layout = [[0, 1], [2, 3], [0, 2], [1, 3]]
    if sys.argv[1:] == ["swapped"] and rank == 1:
        planted.now()
        layout = layout[2:] + layout[:2]
    groups = [dist.new_group(ranks) for ranks in layout]  # <- here
    for ranks, group in zip(layout, groups, strict=True):
        if rank in ranks:
            dist.all_reduce(torch.ones(4), group=group)
    dist.destroy_process_group()
