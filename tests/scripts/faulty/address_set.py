"""The same by a variable, which overwrites the launcher's."""

import os

import torch.distributed as dist

os.environ["MASTER_ADDR"] = "192.168.1.17"  # hit: rendezvous-hardcoded
os.environ["MASTER_PORT"] = "29500"
dist.init_process_group("gloo")
dist.destroy_process_group()
