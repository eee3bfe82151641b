"""Scaled in one method, clipped in another one."""

import torch


class Trainer:
    def __init__(self, model, optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.scaler = torch.amp.GradScaler("cuda")

    def batch(self, batch) -> None:
        self.scaler.scale(self.model(batch).mean()).backward()

    def finish(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # hit: clip-scaled
        self.scaler.step(self.optimizer)
        self.scaler.update()
