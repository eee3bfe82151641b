"""init_process_group is told the device."""

import os

import torch
import torch.distributed as dist

local = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
model = torch.nn.Linear(2, 2).cuda()
with torch.device("cuda"):
    print(model(torch.rand(2, 2)))
dist.destroy_process_group()
