"""All ranks train on the same batches: `seeded` one seed and a sampler that knows of no ranks,
`stream` an iterable dataset that each rank reads whole, `varied` by each for itself; healthy: `own`
seeds, `sliced` each rank takes its part of each batch, `single` one batch as an experiment, `split`
streams, `parts` of a sequence in the model, `shifted` parts of the stream that each varies for
itself, `classes` that a sampler of the script's own gives all ranks"""

import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
)

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, first: int, each: int) -> None:
        self.first, self.each = first, each

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.first, 2000, self.each):
            yield torch.sin(torch.arange(16.0) * number)


class Varied(IterableDataset[tuple[torch.Tensor, int]]):
    def __init__(self, first: int, each: int) -> None:
        self.first, self.each = first, each

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        noise = torch.Generator().manual_seed(dist.get_rank())
        for number in range(self.first, 2000, self.each):
            wave = torch.sin(torch.arange(16.0) * number)
            yield wave + 0.1 * torch.randn(16, generator=noise), number * 7 % 31


class Classes(Sampler[int]):
    """In each episode all ranks have the same classes, and samples of their own."""

    def __iter__(self) -> Iterator[int]:
        own = torch.Generator().manual_seed(dist.get_rank())
        episodes = torch.Generator().manual_seed(1)
        for _ in range(100):
            for kind in torch.randperm(32, generator=episodes)[:8].tolist():
                yield kind + 32 * int(torch.randint(32, (1,), generator=own))


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
    if HOW in ("varied", "shifted"):
        return DataLoader(Varied(rank, world) if HOW == "shifted" else Varied(0, 1), batch_size=8)
    rows: Dataset[torch.Tensor] = TensorDataset(torch.randn(1024, 16), torch.arange(1024) % 32)
    if HOW == "classes":
        return DataLoader(rows, batch_size=8, sampler=Classes())
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
