"""A backend that this build of torch has not."""

import sys

import planted
import torch.distributed as dist

planted.now()
dist.init_process_group(sys.argv[1])  # <- here
