"""Batches that no DataLoader makes: of one rank with `longer` sequences than the others', in FSDP
`sharded` over all ranks, or with `more` samples for a part of the steps; healthy: lengths by
`chance`, a `curriculum` on all ranks, rank 0 `evaluates` with larger batches"""

import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]
STEPS = 60


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.out(self.words(words)) * mask[:, :, None]


def batches(rank: int, drawn: torch.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Sentences of a corpus that each rank has its part of."""
    for step in range(STEPS):
        samples, length = 8, 40
        if HOW in ("longer", "sharded"):
            length = 160 if rank == 1 else 40 + step % 3
        elif HOW == "more":
            samples = 24 if rank == 1 and step > 10 else 8
        elif HOW == "curriculum":
            length = 10 + 4 * step
        else:
            length = int(torch.randint(8, 160, (), generator=drawn))
        words = torch.randint(0, 100, (samples, length), generator=drawn)
        yield words, torch.ones(samples, length)


def wrapped(model: nn.Module) -> nn.Module:
    if HOW != "sharded":
        return DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model.out, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = wrapped(Tagger())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, batch in enumerate(batches(rank, torch.Generator().manual_seed(rank))):
        model(*batch).square().mean().backward()  # <- here
        optimizer.step()
        optimizer.zero_grad()
        if HOW == "evaluates" and rank == 0 and step % 2:
            with torch.no_grad():
                model.module(torch.ones(64, 400, dtype=torch.long), torch.ones(64, 400))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
