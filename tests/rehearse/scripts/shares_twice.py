"""Samples that are divided among the ranks twice: a `subset`, the `rows` of a tensor or a list of
`files` that are a rank's own, under a DistributedSampler; a sampler `wrapped` by another one or a
`stream` of own files in parts of Accelerate's; healthy: `whole` a Subset that all ranks have, `own`
parts without a sampler, `copies` of the files in a folder of each rank, `nodes` and then ranks,
`synthetic` data of each rank, `validation` in parts of its own"""

import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
)

HOW, ROWS = sys.argv[1], 640


class Files(Dataset[torch.Tensor]):
    def __init__(self, names: list[str]) -> None:
        self.kind, self.names, self.labels = "png", names, [0 for _ in names]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((6,), float(hash(self.names[number]) % 7))


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.full((6,), float(len(name))) for name in self.names)


class IterableDatasetShard(IterableDataset[torch.Tensor]):
    """As in accelerate.data_loader: of so many samples one."""

    def __init__(self, dataset: Stream, num_processes: int, process_index: int) -> None:
        self.dataset, self.num_processes, self.process_index = dataset, num_processes, process_index

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number, sample in enumerate(self.dataset):
            if number % self.num_processes == self.process_index:
                yield sample


class BatchSamplerShard(BatchSampler):
    """As in accelerate.data_loader: of so many batches one."""

    def __init__(self, batch_sampler: BatchSampler, num_processes: int, process_index: int) -> None:
        super().__init__(batch_sampler.sampler, batch_sampler.batch_size, batch_sampler.drop_last)
        self.batch_sampler = batch_sampler
        self.num_processes, self.process_index = num_processes, process_index

    def __iter__(self) -> Iterator[list[int]]:
        for number, batch in enumerate(self.batch_sampler):
            if number % self.num_processes == self.process_index:
                yield batch


def loader_of(rank: int, world: int) -> DataLoader[torch.Tensor]:
    torch.manual_seed(rank if HOW == "synthetic" else 1)
    rows = torch.randn(ROWS, 6)
    data: Dataset[torch.Tensor] = TensorDataset(rows)
    parts, part = world, rank
    if HOW in ("subset", "own"):
        data = Subset(data, list(range(rank, ROWS, world)))
    if HOW == "whole":
        data = Subset(data, torch.randperm(ROWS).tolist()[:512])
    if HOW == "rows":
        data = TensorDataset(rows.chunk(world)[rank])
    if HOW in ("files", "copies"):
        names = [f"/data/rank{rank}/{number:05}.png" for number in range(ROWS)]
        data = Files(names[rank::world] if HOW == "files" else names)
    if HOW == "nodes":
        data, parts, part = Subset(data, range(rank // 2, ROWS, 2)), 2, rank % 2
    if HOW == "stream":
        names = [f"{number:05}.tar" for number in range(rank, ROWS, world)]
        return DataLoader(IterableDatasetShard(Stream(names), world, rank), batch_size=8)
    if HOW == "own":
        return DataLoader(data, batch_size=8, shuffle=True)
    sampler = DistributedSampler(data, parts, part)
    if HOW == "wrapped":
        shard = BatchSamplerShard(BatchSampler(sampler, 8, drop_last=False), world, rank)
        return DataLoader(data, batch_sampler=shard)
    return DataLoader(data, batch_size=8, sampler=sampler)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = loader_of(rank, world)
    held = Subset(TensorDataset(torch.randn(64, 6)), range(rank * 16, rank * 16 + 16))
    validation = DataLoader(held, 8, sampler=DistributedSampler(held))
    model = DistributedDataParallel(torch.nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for batch in loader:  # <- here
            given = batch if isinstance(batch, torch.Tensor) else batch[0]
            optimizer.zero_grad()
            model(given).square().mean().backward()
            optimizer.step()
            time.sleep(0.002)
        if HOW == "validation":
            with torch.no_grad():
                for (batch,) in validation:
                    model.module(batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
