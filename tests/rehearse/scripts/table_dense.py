"""A large table of identifiers, of which a batch uses a few rows: its gradient is summed in full
(`dense`); healthy: as a sparse one (`sparse`), a table of which most rows are used (`used`), or
beside layers that are larger (`beside`)"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]
ROWS, COLUMNS, BATCH, FIELDS = 120_000, 64, 128, 8
WIDE = 3072


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, COLUMNS, sparse=HOW == "sparse")
        self.wide = nn.Linear(WIDE, WIDE) if HOW == "beside" else nn.Identity()
        self.deep = nn.Sequential(nn.Linear(FIELDS * COLUMNS, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        found = self.table(fields)
        if HOW == "used":
            found = found + self.table.weight.mean(0)
        out: torch.Tensor = self.deep(found.flatten(1))
        if HOW == "beside":
            out = out + self.wide(found.flatten(1).repeat(1, WIDE // FIELDS // COLUMNS)).mean()
        return out


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Clicks())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for _ in range(200):
        fields, clicked = torch.randint(0, ROWS, (BATCH, FIELDS)), torch.rand(BATCH, 1).round()
        optimizer.zero_grad()
        out = model(fields)
        nn.functional.binary_cross_entropy_with_logits(out, clicked).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
