# started by: python train.py
"""A process group of one, for a library that wants one."""

import torch.distributed as dist

dist.init_process_group("gloo", "tcp://127.0.0.1:4711", rank=0, world_size=1)
dist.destroy_process_group()
