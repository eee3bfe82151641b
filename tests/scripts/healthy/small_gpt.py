"""One file for GPT: DDP when RANK is there, accumulation that syncs in the last step only."""

import os
from contextlib import nullcontext

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

steps = 40
dtype = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="nccl")
    ddp_rank = int(os.environ["RANK"])
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
    master_process = ddp_rank == 0
    seed_offset = ddp_rank
else:
    master_process = True
    seed_offset = 0
    device = "cuda"
torch.manual_seed(1337 + seed_offset)
kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if device == "cpu" else torch.autocast("cuda", dtype=kind)
model = torch.nn.Linear(8, 8).to(device)
scaler = torch.amp.GradScaler("cuda", enabled=(dtype == "float16"))
optimizer = torch.optim.AdamW(model.parameters())
if ddp:
    model = DDP(model, device_ids=[0])
for step in range(100):
    for micro in range(steps):
        if ddp:
            model.require_backward_grad_sync = micro == steps - 1
        with ctx:
            loss = model(torch.rand(4, 8)).sum() / steps
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0 and master_process:
        print(step, loss.item() * steps)
if ddp:
    destroy_process_group()
