"""A first new_group is called by its members only, so that the second is another one for them."""

import planted
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
values = torch.ones(4)
dist.all_reduce(values)
if rank in (0, 1):
    planted.now()
    pair = dist.new_group([0, 1])  # <- here
    dist.all_reduce(values, group=pair)
everybody = dist.new_group([0, 1, 2])  # <- or here
dist.all_reduce(values, group=everybody)
dist.destroy_process_group()
