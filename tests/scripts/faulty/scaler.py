"""A scaler for bfloat16."""

import torch
from torch.amp import GradScaler, autocast


def train(model, loader, optimizer) -> None:
    scaler = GradScaler()  # hit: scaler-bf16
    dtype = torch.bfloat16
    for batch in loader:
        with autocast("cuda", dtype=dtype):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
