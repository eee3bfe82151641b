"""Clipped in the steps of an accumulation, scaled still."""

import torch
from torch.cuda.amp import GradScaler, autocast


def train(model, loader, optimizer, n) -> None:
    scaler = GradScaler()
    for i, batch in enumerate(loader):
        with autocast():
            loss = model(batch).mean() / n
        scaler.scale(loss).backward()
        if (i + 1) % n == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # hit: clip-scaled
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
