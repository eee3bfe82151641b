# started by: torchrun --nproc-per-node=2 train.py
"""What the launcher has said is overwritten, left over from a trial on one GPU."""

import os

import torch.distributed as dist

os.environ["RANK"] = "0"  # hit: rendezvous-hardcoded
os.environ["WORLD_SIZE"] = "1"  # hit: rendezvous-hardcoded
dist.init_process_group("gloo")
dist.destroy_process_group()
