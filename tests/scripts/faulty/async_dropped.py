"""Works that nobody waits for."""

import torch
import torch.distributed as dist


def dropped(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x, async_op=True)  # hit: async-not-waited
    return x / 2


def forgotten(x: torch.Tensor) -> torch.Tensor:
    work = dist.broadcast(x, 0, async_op=True)  # noqa: F841  # hit: async-not-waited
    return x


def collected(parts: list) -> list:
    works = []
    for part in parts:
        works.append(dist.all_reduce(part, async_op=True))  # noqa: PERF401  # hit: async-not-waited
    return parts
