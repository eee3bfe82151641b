"""Clipped beside the scaled step, which a test chooses."""

import torch


def train(model, loader, optimizer, scaler) -> None:
    for batch in loader:
        loss = model(batch).mean()
        if scaler is not None:
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # hit: clip-scaled
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
