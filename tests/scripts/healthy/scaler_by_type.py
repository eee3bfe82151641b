"""A scaler where float16 is chosen."""

import torch


def train(model, loader, optimizer, args) -> None:
    half = args.precision == "float16"
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
