# started by: torchrun --nproc-per-node=4 train.py
"""Each of torchrun's four ranks starts four more."""

import torch
import torch.multiprocessing as mp


def work(rank, size) -> None:
    print(rank, size)


if __name__ == "__main__":
    size = torch.cuda.device_count()
    mp.spawn(work, args=(size,), nprocs=size, join=True)  # hit: launcher-contradicted
