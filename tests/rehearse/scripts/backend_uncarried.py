"""The loss is on the CPU, and the group has a backend for tensors on GPUs alone, as with nccl."""

import planted
import torch
import torch.distributed as dist

dist.init_process_group("cuda:gloo")
loss = torch.ones(1)
planted.now()
dist.all_reduce(loss)  # <- here
