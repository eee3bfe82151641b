"""The same in a class, if the user wants to clip at all."""

import torch


class Trainer:
    def __init__(self, model, optimizer, args) -> None:
        self.model, self.optimizer, self.args = model, optimizer, args
        self.grad_scaler = torch.amp.GradScaler("cuda", enabled=args.amp)

    def step(self, loss) -> None:
        self.grad_scaler.scale(loss).backward()
        if self.args.clip > 0:
            params = self.model.parameters()
            torch.nn.utils.clip_grad_value_(params, self.args.clip)  # hit: clip-scaled
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        self.optimizer.zero_grad()
