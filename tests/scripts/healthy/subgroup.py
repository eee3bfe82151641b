"""Members of a group sum in it; all ranks make it."""

import torch
import torch.distributed as dist

MEMBERS = [0, 1]


def main(x: torch.Tensor, rank: int) -> None:
    group = dist.new_group(MEMBERS)
    if rank in MEMBERS:
        dist.all_reduce(x, group=group)
    if rank < 2:
        dist.broadcast(x, 0, group)
        dist.barrier(group)
    if rank in (2, 3):
        dist.new_group([2, 3], use_local_synchronization=True)


def meshed(x: torch.Tensor, mesh, tp_rank: int) -> None:
    if tp_rank == 0:
        dist.all_reduce(x)
    if mesh.get_local_rank("dp") == 0:
        dist.all_reduce(x, group=mesh.get_group("dp"))
