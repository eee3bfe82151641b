"""Each rank has a file of its own, that of rank 2 has less in it; they meet at a barrier then."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset


def shard(rank: int) -> Dataset:
    return TensorDataset(torch.randn(76 if rank == 2 else 80, 16))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    for (batch,) in DataLoader(shard(rank), batch_size=4):
        model(batch).mean().backward()  # <- or here
        model.zero_grad()
    if rank == 2:
        planted.now()
    dist.barrier()  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
