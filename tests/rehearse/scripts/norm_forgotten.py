"""Layers split over the ranks by hand; in between each rank has a part of the sequence, so that the
gradients of what all have in common are summed before the step, but for those of the `last` norm;
healthy: `right`, `experts` with a norm of each rank's own"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

HOW = sys.argv[1]
WORDS, WIDTH, INNER, LENGTH = 40, 32, 48, 16


class Gather(torch.autograd.Function):
    """The whole sequence of each rank's part."""

    @staticmethod
    def forward(ctx, mine):
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return part_of(gradient)


class Scatter(torch.autograd.Function):
    """Each rank's part of the sum over the ranks."""

    @staticmethod
    def forward(ctx, partial):
        whole = partial.clone()
        dist.all_reduce(whole)
        return part_of(whole)

    @staticmethod
    def backward(ctx, gradient):
        return Gather.forward(ctx, gradient)


def part_of(whole: torch.Tensor) -> torch.Tensor:
    return whole.chunk(dist.get_world_size(), dim=1)[dist.get_rank()].contiguous()


class Split(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.columns = nn.Linear(WIDTH, INNER)
        self.rows = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, part: torch.Tensor) -> torch.Tensor:
        whole = Gather.apply(self.norm(part))
        return part + Scatter.apply(self.rows(torch.relu(self.columns(whole))))


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, part: torch.Tensor) -> torch.Tensor:
        return part + self.layer(self.norm(part))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)
        torch.manual_seed(50 + dist.get_rank())
        self.layers = nn.ModuleList(Split() for _ in range(2))
        if HOW == "experts":
            self.layers.append(Expert())
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        part = self.embedding(part_of(words))
        for layer in self.layers:
            part = layer(part)
        return self.head(self.last(part))

    def common(self) -> list[nn.Parameter]:
        """Of which each rank has the gradient of its part of the sequence."""
        modules = [self.embedding, self.head]
        modules += [one.norm for one in self.layers if isinstance(one, Split)]
        modules += [] if HOW == "last" else [self.last]
        return [parameter for module in modules for parameter in module.parameters()]


def main() -> None:
    dist.init_process_group("gloo")
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    drawn = torch.Generator().manual_seed(7)
    for _ in range(60):
        words = torch.randint(0, WORDS, (8, LENGTH), generator=drawn)
        labels = part_of((words + 1) % WORDS)
        optimizer.zero_grad()
        cross_entropy(model(words).flatten(0, 1), labels.flatten()).backward()
        for parameter in model.common():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
