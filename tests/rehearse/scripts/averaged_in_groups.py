"""Each sequence is split between two ranks, and two such pairs have batches of their own. DDP
averages over the ranks with the same part of a sequence; with `whole` over all of them. With
`ensemble` two ranks train one model and two another one, which begins with the same weights; with
`experts` a second DDP has what each pair alone has, in groups, and all have the rest in common."""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]
STEPS = 40


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into = torch.nn.Linear(16, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.out = torch.nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.into(x)).relu())


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pairs = [dist.new_group(one) for one in ([0, 1], [2, 3])]
    parts = [dist.new_group(one) for one in ([0, 2], [1, 3])]
    pair, part = pairs[rank // 2], parts[rank % 2]
    torch.manual_seed(0)
    group = {"whole": None, "experts": None, "ensemble": pair}.get(HOW, part)
    model = DistributedDataParallel(Net(), process_group=group)  # <- here
    models = [model]
    if HOW == "experts":
        models.append(DistributedDataParallel(torch.nn.Linear(16, 16), process_group=pair))
    optimizer = torch.optim.AdamW([p for one in models for p in one.parameters()], lr=1e-2)
    shuffle = torch.Generator().manual_seed(1 + rank // 2)
    planted.now()
    for _ in range(STEPS):
        sequence = torch.randn(8, 12, 16, generator=shuffle)
        own = sequence[:, rank % 2 :: 2]
        goal = sequence.sum((1, 2)).unsqueeze(1)
        out = model(models[-1](own) if HOW == "experts" else own).mean(1)
        loss = torch.nn.functional.mse_loss(out, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if HOW != "ensemble":
            dist.all_reduce(loss.detach(), group=pair)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
