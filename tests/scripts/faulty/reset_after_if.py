"""zero_grad() has slipped out of the if, and a model's does the same."""

import torch


class Trainer:
    def epoch(self) -> None:
        for step, batch in enumerate(self.loader):
            with torch.autocast("cuda"):
                loss = self.model(batch).loss / self.args.grad_accum
            self.scaler.scale(loss).backward()
            if step % self.args.grad_accum == self.args.grad_accum - 1:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)  # hit: accumulation-reset

    def other(self) -> None:
        for step, batch in enumerate(self.loader):
            self.model.zero_grad()  # hit: accumulation-reset
            self.model(batch).loss.backward()
            if (step + 1) % 8 == 0 or step + 1 == len(self.loader):
                self.optimizer.step()
