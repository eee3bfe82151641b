"""Shared parameters once each: a set of objects is in the order of their addresses."""

import torch.distributed as dist


def sync(model) -> None:
    for parameter in set(model.parameters()):  # hit: set-order
        dist.broadcast(parameter.data, src=0)
