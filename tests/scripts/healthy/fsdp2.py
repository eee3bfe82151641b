"""fully_shard over a mesh, bfloat16 without a scaler."""

import os

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

rank = int(os.environ["LOCAL_RANK"])
device = torch.device(f"cuda:{rank}")
torch.cuda.set_device(device)
torch.distributed.init_process_group(backend="nccl", device_id=device)
mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
model = torch.nn.Linear(8, 8)
fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
for _ in range(10):
    model(torch.rand(2, 8, device=device)).sum().backward()
if rank == 0:
    print(torch.cuda.max_memory_allocated())
torch.distributed.destroy_process_group()
