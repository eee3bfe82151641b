"""Rank 1 meets a bad sample at step 3; rank 0 is in the all-reduce of the gradients."""

import planted
import torch
import torch.distributed as dist


def train(rank: int) -> None:
    model = torch.nn.Linear(8, 1)
    for step in range(200):
        target = torch.full((4, 1), float(step))
        if rank == 1 and step == 3:
            planted.now()
            raise ValueError(f"label {step} is out of range")  # <- here
        loss = torch.nn.functional.mse_loss(model(torch.ones(4, 8)), target)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.zero_()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()
