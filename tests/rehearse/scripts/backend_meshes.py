"""A mesh of data and tensor parallel ranks, and a group with a name of its own for two of them."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
metrics = dist.new_group([0, 1], group_desc="metrics")
for _ in range(20):
    dist.all_reduce(torch.ones(4), group=mesh["tp"].get_group())
    dist.all_reduce(torch.ones(4), group=mesh["dp"].get_group())
if dist.get_rank() < 2:
    dist.all_reduce(torch.ones(1), group=metrics)
dist.destroy_process_group()
