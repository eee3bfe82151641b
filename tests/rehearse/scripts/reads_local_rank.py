"""Started by srun or mpirun, which set no LOCAL_RANK."""

import os

import planted
import torch
import torch.distributed as dist

planted.now()
device = torch.device("cpu", int(os.environ["LOCAL_RANK"]))  # <- here
dist.init_process_group("gloo")
