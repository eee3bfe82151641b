"""bfloat16, and a scaler that is switched off or on by a branch."""

import torch

ENABLED = False


def plain(model, batch) -> None:
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)
    scaler.scale(loss).backward()


def named(model, batch) -> None:
    scaler = torch.amp.GradScaler("cuda", enabled=ENABLED)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        scaler.scale(model(batch)).backward()
