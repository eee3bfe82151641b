"""Rank 0 has the data and the others their empty tensors."""

import torch
import torch.distributed as dist


def share(x: torch.Tensor, rank: int) -> torch.Tensor:
    if rank == 0:
        shape = torch.tensor(x.shape)
        dist.broadcast(shape, 0)
        dist.broadcast(x, 0)
    else:
        shape = torch.zeros(2, dtype=torch.long)
        dist.broadcast(shape, src=0)
        x = torch.zeros(tuple(shape.tolist()))
        dist.broadcast(x, src=0)
    return x


def collect(x: torch.Tensor) -> list:
    if dist.get_rank() == 0:
        parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.gather(x, gather_list=parts, dst=0)
        return parts
    dist.gather(x, dst=0)
    return []


def objects(config: dict) -> dict:
    box = [config] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def scattered(out: torch.Tensor, rank: int, parts: list) -> None:
    dist.scatter(out, parts) if rank == 0 else dist.scatter(out)
