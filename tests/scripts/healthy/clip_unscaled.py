"""Unscaled, then clipped."""

import torch

scaler = torch.amp.GradScaler("cuda")


def train(model, loader, optimizer) -> None:
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
