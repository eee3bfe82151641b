"""Ranks whose calls come apart after some steps, by what was wrong before. What `reduce` gives to
rank 0 alone decides who exports; an expert without samples gives `zeros` that have no backward;
tables are sent in the order of a `strings` set; a collective in the forward of a model under `join`
that has other batches; a `timer` of each rank's own ends the loop; a pipeline of two, of which the
first one drops its `last` batch. Healthy: `all`, `kept`, `sorted`, `thrown`, `told`, `whole`"""

import sys
import time

import torch
import torch.distributed as dist
from planted import now
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows):
        out = torch.empty_like(rows)
        dist.all_to_all_single(out, rows.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())  # <- here
        return out


def summed(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)


def exports(rank: int) -> None:
    model = DistributedDataParallel(nn.Linear(8, 4))
    for step in range(12):
        model(torch.randn(4, 8)).square().mean().backward()
        score = torch.tensor(0.1 * step * (rank + 1))
        if HOW == "all":
            dist.all_reduce(score)
        else:
            dist.reduce(score, dst=0)  # <- here
        if score > 1.5:  # rank 0 has six times as much, the others what they had
            now()
            weights = [torch.empty(4, 8) for _ in range(dist.get_world_size())]
            dist.all_gather(weights, model.module.weight.detach())
        time.sleep(0.05)


def routes(rank: int) -> None:
    torch.manual_seed(0)
    gate, expert = nn.Linear(8, 8), nn.Linear(8, 8)
    for step in range(12):
        rows = Exchange.apply(gate(torch.randn(6, 8)))
        if step == 8 and rank == 1:
            now()
            idle = torch.zeros(6, 8)
            rows = rows * 0 + idle if HOW == "kept" else idle.requires_grad_()
        expert(rows).square().mean().backward()
        summed(gate)
        time.sleep(0.05)


def sends(rank: int) -> None:
    tables = {f"table {n}": torch.zeros(4 + n, 2) for n in range(6)}
    for step in range(10):
        dist.all_reduce(torch.ones(1))
        time.sleep(0.05)
        if step == 7:
            now()
            names = sorted(tables) if HOW == "sorted" else set(tables)
            for name in names:
                owner = int(name[-1]) % dist.get_world_size()
                dist.broadcast(tables[name], src=owner)  # <- here


class Queue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        keys = self.layer(batch)
        every = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
        dist.all_gather(every, keys.detach())  # <- here
        return (keys @ torch.cat(every).T).square().mean()


def joins(rank: int) -> None:
    model = DistributedDataParallel(Queue())
    try:
        with model.join(throw_on_early_termination=HOW == "thrown"):
            for number in range(12 + 4 * rank):
                if number == 12:
                    now()
                model(torch.randn(4, 8)).backward()
                time.sleep(0.05)
    except RuntimeError as error:
        if "exhausted" not in str(error):
            raise


def stops(rank: int) -> None:
    model = DistributedDataParallel(nn.Linear(8, 4))
    end = time.monotonic() + 1.0 + 0.7 * (rank == 0)
    over = torch.zeros(1)
    while not over:
        model(torch.randn(4, 8)).square().mean().backward()
        time.sleep(0.05)
        over.fill_(time.monotonic() >= end)
        if HOW == "told":
            dist.all_reduce(over, dist.ReduceOp.MAX)
    now()
    dist.barrier()  # <- here


def passes(rank: int) -> None:
    samples = 44
    batches = samples // 4 if HOW == "whole" else samples // 8 + (rank > 0)
    part = torch.ones(4, 8)
    for number in range(batches):
        if rank == 0:
            dist.send(part, dst=1)
        else:
            if number == 5:
                now()
            dist.recv(part, src=0)  # <- here
        time.sleep(0.05)
    dist.all_reduce(torch.ones(1))  # <- here


if __name__ == "__main__":
    dist.init_process_group("gloo")
    {
        **dict.fromkeys(("reduce", "all"), exports),
        **dict.fromkeys(("zeros", "kept"), routes),
        **dict.fromkeys(("strings", "sorted"), sends),
        **dict.fromkeys(("join", "thrown"), joins),
        **dict.fromkeys(("timer", "told"), stops),
        **dict.fromkeys(("last", "whole"), passes),
    }[HOW](dist.get_rank())
    dist.destroy_process_group()
