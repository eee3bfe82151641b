"""Rank 1 reduces two tensors of the same shape in the other order: nothing hangs."""

import time

import planted
import torch
import torch.distributed as dist


def reduce_loss(loss: torch.Tensor) -> None:
    dist.all_reduce(loss)  # <- here


def reduce_accuracy(accuracy: torch.Tensor) -> None:
    dist.all_reduce(accuracy)  # <- or here


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        planted.now()
    for _ in range(100):
        loss, accuracy = torch.ones(1), torch.zeros(1)
        if rank == 1:
            reduce_accuracy(accuracy)
            reduce_loss(loss)
        else:
            reduce_loss(loss)
            reduce_accuracy(accuracy)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
