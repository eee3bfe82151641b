"""Gradients are clipped while they are thousands of times too large."""

import torch
from torch.nn.utils import clip_grad_norm_

scaler = torch.cuda.amp.GradScaler()


def train(model, loader, optimizer) -> None:
    for batch in loader:
        optimizer.zero_grad()
        with torch.cuda.amp.autocast():
            loss = model(batch).mean()
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)  # hit: clip-scaled
        scaler.step(optimizer)
        scaler.update()
