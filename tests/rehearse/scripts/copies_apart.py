"""A copy of the model is kept, and all ranks use it: `averaged` weights that rank 0 alone updates,
`loaded` into the model from a copy of its own, `decay` by the rank, or made too `early`, before DDP
gives all ranks one model; healthy: `right` on all ranks, `same` since all ranks have one seed,
`kept` and evaluated by rank 0 alone, `shared` by a broadcast before all use it, `saved` on rank 0
and loaded by all, `teacher` that stays as it is, `own` as each rank's best so far"""

import copy
import sys
from pathlib import Path

import planted
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

HOW = sys.argv[1]
STEPS, EACH = 60, 20


class Averages:
    """Averaged weights, with torch's class or by hand."""

    def __init__(self, model: nn.Module) -> None:
        self.copy = copy.deepcopy(model).eval()  # <- here

    def begin_with(self, made: nn.Module) -> None:
        self.copy = made.eval()

    @torch.no_grad()
    def update(self, model: nn.Module, decay: float) -> None:
        for mine, new in zip(self.copy.parameters(), model.parameters(), strict=True):
            mine.lerp_(new, 1 - decay)


def built() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))


def evaluate(model: nn.Module) -> None:
    with torch.no_grad():
        score = model(torch.ones(8, 16)).square().mean()
    dist.all_reduce(score)


def swapped(model: nn.Module, averages: Averages) -> None:
    """Evaluates with the averaged weights in the model, and puts back its own."""
    trained = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(averages.copy.state_dict())
    evaluate(model)
    model.load_state_dict(trained)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank if HOW == "early" else 0)
    net, teacher = built(), built()
    if HOW in ("early", "same"):
        teacher.load_state_dict(net.state_dict())  # <- or here
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averages = Averages(net)
    averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # <- or here
    if HOW in ("early", "same"):
        averages.begin_with(teacher)
    torch.manual_seed(100 + rank)
    planted.now()
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        (model(torch.randn(8, 16)) - 1).square().mean().backward()
        optimizer.step()
        alone = HOW in ("averaged", "loaded", "kept", "shared", "saved")
        if HOW not in ("teacher", "own") and (rank == 0 or not alone):
            averaged.update_parameters(net)
            averages.update(net, 0.5 + 0.2 * rank if HOW == "decay" else 0.9)
        if HOW == "own" and torch.rand(()) < 0.5:
            averages.copy.load_state_dict(net.state_dict())
        if step % EACH or HOW in ("decay", "early", "teacher", "own"):
            continue
        if HOW == "shared":
            for parameter in averages.copy.parameters():
                dist.broadcast(parameter.data, 0)
        if HOW in ("averaged", "right"):
            evaluate(averaged)
        if HOW in ("loaded", "right", "same", "shared"):
            swapped(net, averages)
        if HOW in ("kept", "saved") and rank == 0:
            averaged(torch.ones(8, 16))
            torch.save(averages.copy.state_dict(), "averages.pt")
        dist.barrier()
        if HOW == "saved":
            net.load_state_dict(torch.load(Path("averages.pt")))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
