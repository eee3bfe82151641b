"""The same in a loop; the loss is read now and then only."""

import torch


def train(model, optimizer, loader) -> None:
    stage = torch.empty(64, 128).pin_memory()
    on_gpu = torch.empty(64, 128, device="cuda")
    for rows in loader:
        stage[:] = rows
        on_gpu.copy_(stage, non_blocking=True)  # hit: copy-not-awaited
        loss = model(on_gpu).mean()
        loss.backward()
        optimizer.step()
