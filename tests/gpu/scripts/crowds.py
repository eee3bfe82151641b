"""Every rank takes the same GPU, which NCCL refuses."""

import torch
import torch.distributed as dist

torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
dist.all_reduce(torch.ones(4, device="cuda"))
dist.destroy_process_group()
