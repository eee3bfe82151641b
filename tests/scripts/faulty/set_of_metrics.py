"""Metrics are summed one after the other, in the order of a set of texts."""

import torch.distributed as dist


def summed(values) -> None:
    for name in {"loss", "accuracy", "perplexity"}:  # hit: set-order
        dist.all_reduce(values[name])
