# started by: torchrun --nnodes=2 --nproc-per-node=4 train.py
"""Only what nobody has set; and a process alone, where there is no launcher."""

import os

import torch.distributed as dist

os.environ.setdefault("MASTER_ADDR", "localhost")
if "MASTER_PORT" not in os.environ:
    os.environ["MASTER_ADDR"] = "10.0.0.1"
    os.environ["MASTER_PORT"] = "29500"
if "RANK" not in os.environ:
    os.environ["RANK"], os.environ["WORLD_SIZE"] = "0", "1"
    dist.init_process_group("gloo", "tcp://127.0.0.1:4711", rank=0, world_size=1)
else:
    dist.init_process_group("gloo")
os.environ["MASTER_ADDR"] = os.environ.get("HEAD", "")
dist.destroy_process_group()
