"""The same, the backend as the first argument at the top of the file."""

import os

import torch
import torch.distributed

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
torch.distributed.init_process_group("nccl", device_id=local_rank)  # hit: destroy-missing
print("gloo is not meant", torch.distributed.get_rank())
