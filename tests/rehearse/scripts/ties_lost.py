"""An embedding and an output layer with one weight, which are two by the time they are trained:
`assign` a checkpoint, `empty` after the meta device, `pretrained` vectors; healthy: `loaded` into
the weight, tied `again`, untied on `purpose`, `pruned`, a copy `frozen`"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import prune

HOW = sys.argv[1]


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 40, bias=False)
        self.tie()

    def tie(self) -> None:
        self.head.weight = self.embed.weight  # <- here

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(words)).tanh())


def model_of() -> Language:
    if HOW == "empty":
        with torch.device("meta"):
            model = Language()
        model.to_empty(device="cpu")
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.1)
        return model
    model = Language()
    saved = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.load_state_dict(saved, assign=HOW in ("assign", "again"))
    if HOW == "again":
        model.tie()
    if HOW == "pretrained":
        model.embed.weight = nn.Parameter(torch.randn(40, 8))
    if HOW == "purpose":
        model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    if HOW == "pruned":
        prune.l1_unstructured(model.body, "weight", 0.2)
    if HOW == "frozen":
        model.embed.weight = nn.Parameter(torch.randn(40, 8), requires_grad=False)
    return model


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(model_of())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(7 + dist.get_rank())
    for _ in range(40):
        words = torch.randint(40, (16,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(words), words).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
