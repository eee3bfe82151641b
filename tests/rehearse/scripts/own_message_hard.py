"""Rank 1 prints why it can't go on and ends at once, before it joins; rank 0 waits for it"""

import os
import sys

import planted
import torch.distributed as dist

if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        planted.now()
        print("FATAL: the licence server refuses this host", file=sys.stderr, flush=True)
        os._exit(7)
    dist.init_process_group("gloo")
    dist.destroy_process_group()
