"""Rank 0 drives an optimizer that asks for the loss as often as it likes; the others follow it
once."""

import os

import torch
import torch.distributed as dist

GO, STOP = 1, 0


def main() -> None:
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters())
    signal = torch.zeros(1)
    data = torch.randn(64, 4)

    def closure() -> torch.Tensor:
        if rank == 0:
            signal.fill_(GO)
            dist.broadcast(signal, src=0)  # hit: collective-under-rank
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        dist.all_reduce(loss)
        return loss

    if rank == 0:
        optimizer.step(closure)
        signal.fill_(STOP)
        dist.broadcast(signal, src=0)
    else:
        closure()
    dist.destroy_process_group()


main()
