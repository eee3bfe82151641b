# started by: python -m torch.distributed.run --nproc_per_node 2 train.py
"""Each rank is a world of its own."""

import torch.distributed as dist

dist.init_process_group(  # hit: rendezvous-hardcoded
    "gloo", "tcp://127.0.0.1:4711", rank=0, world_size=1
)
dist.destroy_process_group()
