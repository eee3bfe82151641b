"""Parameters that have gradients and are not trained: `list` and `dict` layers that the model does
not know of, `head` the optimizer was made before the head, `embedding` before the embeddings were
resized; without an argument, or with another one, all is as it is meant to be"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1] if len(sys.argv) > 1 else ""
COLUMNS = ("colour", "size")


class Listed(nn.Module):
    def __init__(self, plain: bool) -> None:  # <- here
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(3)]
        self.blocks = blocks if plain else nn.ModuleList(blocks)
        self.aliases = [self.blocks[0]]
        self.out = nn.Linear(16, 4)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            given = given + block(given)
        return self.out(given)


class Embedded(nn.Module):
    def __init__(self, plain: bool) -> None:  # <- or here
        super().__init__()
        tables = {name: {"table": nn.Embedding(10, 16)} for name in COLUMNS}
        self.by_column = tables
        if not plain:
            self.tables = nn.ModuleList([tables[name]["table"] for name in COLUMNS])
        self.out = nn.Linear(16, 4)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        codes = given.abs().mul(10).long().clamp(max=9)
        found = [self.by_column[name]["table"](codes[:, n]) for n, name in enumerate(COLUMNS)]
        return self.out(sum(found))


class Headed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 16)
        self.body = nn.Linear(16, 16)
        self.head = nn.Linear(16, 1000)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        codes = given.abs().mul(10).long().clamp(max=9)
        return self.head(self.body(self.words(codes[:, 0]) + given))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)  # <- or here


def main() -> None:
    dist.init_process_group("gloo")
    optimizer = None
    if HOW in ("list", "listed"):
        model = Listed(HOW == "list")
    elif HOW in ("dict", "dicts"):
        model = Embedded(HOW == "dict")
    else:
        model = Headed()
        if HOW in ("head", "embedding"):
            optimizer = optimizer_of(model)
        if HOW == "embedding":
            model.words = nn.Embedding(14, 16)
        else:
            model.head = nn.Linear(16, 4)
    if HOW == "subset":
        optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
    elif HOW == "frozen":
        model.body.requires_grad_(False)
        model.critic = [nn.Linear(4, 1)]
        model.teacher = {"old": nn.Linear(4, 4).eval()}
    optimizer = optimizer or optimizer_of(model)
    ddp = DistributedDataParallel(model)
    for _ in range(40):
        out = ddp(torch.randn(8, 16))
        loss = out.square().mean()
        if HOW == "frozen":  # one that is not updated yet, one that never will be
            with torch.no_grad():
                model.critic[0](out)
            loss = loss + (model.teacher["old"](out) - out).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
