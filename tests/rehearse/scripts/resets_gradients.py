"""Accumulation over batches of which only the last one counts: zero_grad() `first` in each batch,
`after` each backward, in a `method` of the trainer, or `once` before the last batch; healthy:
`right`, `twice`, `skips` of batches, `sam`, `adversarial` batches, `closure`, `gan`, `penalty`,
`tasks` of an inner loop"""

import copy
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

HOW, BATCHES = sys.argv[1], 4


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(3)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU()))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.critic = DistributedDataParallel(nn.Linear(8, 1))
        self.second = torch.optim.SGD(self.critic.parameters(), lr=0.02)
        data = TensorDataset(torch.randn(BATCHES * 8 * 30, 6))
        self.loader = DataLoader(data, 8, sampler=DistributedSampler(data))

    def batches(self) -> Iterator[tuple[int, torch.Tensor]]:
        for _ in range(2):
            for number, (batch,) in enumerate(self.loader):
                yield number % BATCHES, batch

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.model(batch).square().mean()
        return loss

    def prepare(self) -> None:
        self.model.zero_grad()  # <- or here

    def accumulate(self) -> None:
        for number, batch in self.batches():
            if HOW == "first" or (HOW == "once" and number == BATCHES - 1):
                self.optimizer.zero_grad()  # <- here
            if HOW == "method":
                self.prepare()
            (self.loss(batch) / BATCHES).backward()
            if HOW == "skips" and number == 1 and batch.sum() > 6:
                self.optimizer.zero_grad()
            if number == BATCHES - 1:
                self.optimizer.step()
                self.optimizer.zero_grad()
            elif HOW == "after":
                self.optimizer.zero_grad(set_to_none=False)  # <- or here
            if HOW == "twice" and number == BATCHES - 1:
                self.model.zero_grad()
                self.optimizer.zero_grad()

    def perturb(self) -> None:
        """A step of SAM, over all batches of a step."""
        kept = []
        for number, batch in self.batches():
            kept.append(batch)
            self.loss(batch).backward()
            if number < BATCHES - 1:
                continue
            with torch.no_grad():
                moved = [0.05 * p.grad.sign() for p in self.model.parameters()]
                for parameter, by in zip(self.model.parameters(), moved, strict=True):
                    parameter.data += by
            self.optimizer.zero_grad()
            for batch in kept:
                self.loss(batch).backward()
            with torch.no_grad():
                for parameter, by in zip(self.model.parameters(), moved, strict=True):
                    parameter.data -= by
            self.optimizer.step()
            self.optimizer.zero_grad()
            kept.clear()

    def attack(self) -> None:
        for _, batch in self.batches():
            batch.requires_grad_(True)
            self.loss(batch).backward()
            worse = (batch + 0.1 * batch.grad.sign()).detach()
            self.optimizer.zero_grad()
            self.loss(worse).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def close(self) -> None:
        self.optimizer = torch.optim.LBFGS(self.model.parameters(), lr=0.01, max_iter=4)
        for _, batch in self.batches():

            def closure(batch: torch.Tensor = batch) -> torch.Tensor:
                self.optimizer.zero_grad()
                loss = self.loss(batch)
                loss.backward()
                dist.all_reduce(mean := loss.detach() / dist.get_world_size())
                return mean

            self.optimizer.step(closure)

    def compete(self) -> None:
        """The critic drops what it got from the other one's pass, which takes several batches."""
        for number, batch in self.batches():
            self.second.zero_grad()
            self.critic(self.model.module(batch)).mean().backward()
            self.second.step()
            if number == BATCHES - 1:
                self.optimizer.zero_grad()
                self.critic.module(self.model(batch)).mean().neg().backward()
                self.optimizer.step()

    def penalise(self) -> None:
        for number, batch in self.batches():
            batch.requires_grad_(True)
            out = self.model.module(batch).sum()
            (slope,) = torch.autograd.grad(out, batch, create_graph=True)
            (self.loss(batch) + slope.square().mean()).backward()
            if number == BATCHES - 1:
                self.optimizer.step()
                self.optimizer.zero_grad()

    def adapt(self) -> None:
        """Of each task a copy learns, and its gradients are those of the model."""
        for number, batch in self.batches():
            learner = copy.deepcopy(self.model.module)
            inner = torch.optim.SGD(learner.parameters(), lr=0.1)
            for _ in range(2):
                inner.zero_grad()
                learner(batch).square().mean().backward()
                inner.step()
            for mine, theirs in zip(self.model.parameters(), learner.parameters(), strict=True):
                mine.grad = theirs.grad if mine.grad is None else mine.grad + theirs.grad
            if number == BATCHES - 1:
                for parameter in self.model.parameters():
                    dist.all_reduce(parameter.grad)
                self.optimizer.step()
                self.optimizer.zero_grad()


def main() -> None:
    dist.init_process_group("gloo")
    trainer = Trainer()
    ways = {"sam": trainer.perturb, "adversarial": trainer.attack, "closure": trainer.close}
    ways |= {"gan": trainer.compete, "penalty": trainer.penalise, "tasks": trainer.adapt}
    ways.get(HOW, trainer.accumulate)()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
