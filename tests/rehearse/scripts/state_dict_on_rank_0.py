"""FSDP2 on CPU: only rank 0 asks for the full state dict, whose all-gathers need everybody"""

import planted
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    model(torch.randn(4, 8)).mean().backward()
    if dist.get_rank() == 0:
        planted.now()
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        get_model_state_dict(model, options=whole)  # <- here
    dist.barrier()
    dist.destroy_process_group()
