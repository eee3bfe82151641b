import os
from contextlib import nullcontext

import torch
from model import GPT, GPTConfig
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

backend = "nccl"
eval_interval, max_iters, always_save_checkpoint = 2000, 600000, True
gradient_accumulation_steps = 40
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    ddp_rank = int(os.environ["RANK"])
    ddp_local_rank = int(os.environ["LOCAL_RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    device = f"cuda:{ddp_local_rank}"
    torch.cuda.set_device(device)
    master_process = ddp_rank == 0
    seed_offset = ddp_rank
    gradient_accumulation_steps //= ddp_world_size
else:
    device, master_process, seed_offset = "cuda", True, 0
torch.manual_seed(1337 + seed_offset)
ctx = nullcontext()
model = GPT(GPTConfig()).to(device)
scaler = torch.cuda.amp.GradScaler(enabled=True)
optimizer = model.configure_optimizers()
if ddp:
    model = DDP(model, device_ids=[ddp_local_rank])


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(200)
        for k in range(200):
            X, Y = get_batch(split)
            with ctx:
                _logits, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


def get_batch(split):
    x = torch.randint(0, 100, (8, 64))
    return x.to(device), x.to(device)


X, Y = get_batch("train")
iter_num, best_val_loss = 0, 1e9
raw_model = model.module if ddp else model
while True:
    if iter_num % eval_interval == 0 and master_process:
        losses = estimate_loss()
        if losses["val"] < best_val_loss or always_save_checkpoint:
            best_val_loss = losses["val"]
            torch.save({"model": raw_model.state_dict()}, "ckpt.pt")
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    if iter_num > max_iters:
        break
if ddp:
    destroy_process_group()
