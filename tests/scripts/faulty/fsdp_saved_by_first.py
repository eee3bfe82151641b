"""A state_dict of FSDP is put together by all ranks, and only rank 0 asks for it."""

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, rank, epochs, train) -> None:
    model = FSDP(net)
    for epoch in range(epochs):
        train(model)
        if rank == 0:
            torch.save(model.state_dict(), f"{epoch}.pt")  # hit: wrapped-under-rank
