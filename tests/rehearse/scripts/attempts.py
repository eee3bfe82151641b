"""Rank 0 tries again and again, with pauses longer than --stuck, and comes through: `retries` a
download, `doubles` at twice the distance each time; the others are at the barrier. `workers`: a
DataLoader whose workers take that long to start, again in each epoch."""

import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


def fetch(attempt: int) -> None:
    if attempt < 3:
        raise ConnectionError("503 Slow Down")


def retry(pauses: list[float]) -> None:
    for attempt, pause in enumerate(pauses):
        try:
            return fetch(attempt)
        except ConnectionError:
            time.sleep(pause)


def start(number: int) -> None:
    time.sleep(8)


def main() -> None:
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if sys.argv[1] == "workers":
        data = TensorDataset(torch.ones(16, 2))
        loader = DataLoader(data, batch_size=4, num_workers=2, worker_init_fn=start)
        for _ in range(2):
            for (batch,) in loader:
                dist.all_reduce(batch)
    elif dist.get_rank() == 0:
        retry([8.0, 8.0, 8.0] if sys.argv[1] == "retries" else [2.0, 5.0, 11.0])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
