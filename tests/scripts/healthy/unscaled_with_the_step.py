"""Gradients are divided by the scale once for each step, whatever else is asked there."""

import torch
from torch.amp import GradScaler, autocast


def after_some(model, loader, optimizer, every: int, most: float) -> None:
    scaler = GradScaler("cuda")
    for number, (x, y) in enumerate(loader):
        last = (number + 1) % every == 0
        with autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(x), y) / every
        scaler.scale(loss).backward()
        if last and most > 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), most)
        if last:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def each(model, loader, optimizer, schedule) -> None:
    scaler = GradScaler("cuda")
    for number, (x, y) in enumerate(loader):
        scaler.scale(torch.nn.functional.mse_loss(model(x), y)).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if number % 100 == 0:
            schedule.step()


def micro_batches(model, batches, optimizer) -> None:
    scaler = GradScaler("cuda")
    for batch in batches:
        for x in batch.chunk(4):
            scaler.scale(model(x).mean() / 4).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
