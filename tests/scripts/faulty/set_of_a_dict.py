"""A dict whose keys are gone through as a set."""

import torch.distributed as dist


def summed(metrics) -> None:
    for key in set(metrics):  # hit: set-order
        dist.all_reduce(metrics[key])
