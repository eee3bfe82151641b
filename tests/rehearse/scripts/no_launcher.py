"""Started with python where it needs torchrun; `env`: it reads LOCAL_RANK itself."""

import os
import sys

import planted
import torch.distributed as dist

planted.now()
if sys.argv[1:] == ["env"]:
    print("GPU", os.environ["LOCAL_RANK"])  # <- here
else:
    dist.init_process_group("gloo")  # <- here
dist.barrier()
dist.destroy_process_group()
