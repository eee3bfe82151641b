"""Clipping was put beside the scaled backward, and the optimizer steps after some batches."""

import torch
from torch.amp import GradScaler, autocast


def train(model, loader, optimizer, every: int) -> None:
    scaler = GradScaler("cuda")
    for number, (x, y) in enumerate(loader):
        last = (number + 1) % every == 0
        with autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(x), y) / every
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # hit: unscaled-each-batch
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if last:
            scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        scaler.update()


class Trainer:
    def __init__(self, model, optimizer, every: int) -> None:
        self.model, self.optimizer, self.every = model, optimizer, every
        self.scaler = GradScaler("cuda")

    def batch(self, number: int, x: torch.Tensor) -> None:
        self.scaler.scale(self.model(x).mean() / self.every).backward()
        self.scaler.unscale_(self.optimizer)  # hit: unscaled-each-batch
        if (number + 1) % self.every == 0:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
