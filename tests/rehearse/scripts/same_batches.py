"""All ranks train on the same batches: `seeded` one seed and a sampler that knows of no ranks,
`stream` an iterable dataset that each rank reads whole; healthy: `own` seeds, `sliced` each rank
takes its part of each batch, `single` one batch as an experiment, `split` streams, `parts` of a
sequence in the model"""

import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, first: int, each: int) -> None:
        self.first, self.each = first, each

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.first, 2000, self.each):
            yield torch.sin(torch.arange(16.0) * number)


class OfParts(nn.Module):
    """Each rank has a part of the sequence, and gets the others' results."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        own = self.inner(given[:, 8 * dist.get_rank() :][:, :8])
        others = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(others, own.detach())
        return own + sum(others)


def loader_of(rank: int, world: int) -> DataLoader[torch.Tensor]:
    if HOW in ("stream", "split"):
        return DataLoader(Stream(rank, world) if HOW == "split" else Stream(0, 1), batch_size=8)
    rows: Dataset[torch.Tensor] = TensorDataset(torch.randn(1024, 16))
    seed = rank if HOW == "own" else 7
    sampler = RandomSampler(rows, generator=torch.Generator().manual_seed(seed))
    return DataLoader(rows, batch_size=8, sampler=sampler)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = OfParts() if HOW == "parts" else nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader, kept = loader_of(rank, world), None
    for step, batch in enumerate(loader):  # <- here
        given = batch if isinstance(batch, torch.Tensor) else batch[0]
        given = given[rank::world] if HOW == "sliced" else given
        kept = given if kept is None else kept
        optimizer.zero_grad()
        model(kept if HOW == "single" else given).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)
        if step == 40:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
