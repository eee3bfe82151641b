"""float16 with its scaler, in the words of old and new."""

import torch
from torch.cuda.amp import GradScaler, autocast


def old(model, loader, optimizer) -> None:
    scaler = GradScaler()
    for batch in loader:
        with autocast():
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def new(model, loader) -> None:
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch)
        scaler.scale(loss).backward()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            model.evaluate(batch)
