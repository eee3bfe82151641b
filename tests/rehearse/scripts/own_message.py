"""Rank 1 finds no data and ends with a message of its own before it joins; rank 0 waits for it"""

import os
import sys

import planted
import torch.distributed as dist

if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        planted.now()
        sys.exit("no shard for rank 1 under /data/train")  # <- here
    dist.init_process_group("gloo")
    dist.destroy_process_group()
