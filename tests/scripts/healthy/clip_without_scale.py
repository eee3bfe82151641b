"""With float16 it is scaled and never clipped, without it is clipped."""

import torch
from torch.cuda.amp import GradScaler, autocast

scaler = GradScaler()


def train(model, loader, optimizer, args) -> None:
    for batch in loader:
        with autocast(enabled=args.fp16):
            loss = model(batch).mean()
        if args.fp16:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def apart(model, loss, optimizer, args) -> None:
    scaler.scale(loss).backward()
    if not args.use_amp:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
