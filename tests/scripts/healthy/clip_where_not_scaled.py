"""Clipped only where nothing is scaled."""

import torch


def train(model, loader, optimizer, scaler, use_amp) -> None:
    for batch in loader:
        loss = model(batch).mean()
        if use_amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if not use_amp:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if use_amp:
            scaler.step(optimizer)
        else:
            optimizer.step()
