"""Each process sees one GPU only."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2).cuda()
print(model(torch.rand(2, 2).to("cuda")))
dist.destroy_process_group()
