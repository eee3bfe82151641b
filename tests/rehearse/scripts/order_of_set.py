"""A model with a head and a table for each language of a set: in an order that is another one on
each rank, since Python hashes strings otherwise in each process; or, where they are sorted, not."""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

mode = sys.argv[1]
LANGUAGES = {"german", "french", "polish", "danish", "basque", "korean", "somali", "telugu"}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(8, 8)
        self.heads = torch.nn.ModuleDict()
        for language in sorted(LANGUAGES) if mode in ("sorted", "tables") else LANGUAGES:
            self.heads[language] = torch.nn.Linear(8, 4)
        for language in LANGUAGES if mode == "tables" else sorted(LANGUAGES):
            table = torch.full((8,), float(len(self._buffers) + 1))
            self.register_buffer(language, table, persistent=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        body = self.body(batch)
        each = [self.heads[name](body * getattr(self, name)) for name in sorted(LANGUAGES)]
        return torch.stack(each)


dist.init_process_group("gloo")
planted.now()
model = DDP(Model())  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(20):
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
