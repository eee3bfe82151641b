"""A module of the user's own, beside the scripts."""

import planted
import torch


def flip(batch: torch.Tensor, step: int, rank: int) -> torch.Tensor:
    if rank == 2 and step == 5:
        planted.now()
        return batch.reshape(3, -1, 7)  # <- here
    return batch.flip(-1)
