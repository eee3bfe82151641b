"""Started by mpirun, which sets no RANK."""

import planted
import torch.distributed as dist

planted.now()
dist.init_process_group("gloo")  # <- here
