"""A second phase with an optimizer of its own: the head is replaced inside of what DDP has wrapped,
and nobody sums its gradients; with `again` the model is wrapped again, and with `teacher` the first
phase is that of another model, which rank 0 trains alone"""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 8)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(batch).relu())


def train(model: torch.nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).pow(2).mean().backward()
        optimizer.step()


def teach() -> None:
    """Rank 0 trains a teacher for all, and then all train the model."""
    torch.manual_seed(0)
    teacher = Classifier()
    if dist.get_rank() == 0:
        train(teacher, 80)
    for value in teacher.state_dict().values():
        dist.broadcast(value, 0)
    torch.manual_seed(dist.get_rank())
    train(DistributedDataParallel(Classifier()), 100)


def main() -> None:
    dist.init_process_group("gloo")
    if "teacher" in sys.argv:
        teach()
        dist.destroy_process_group()
        return
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Classifier(), find_unused_parameters=True)  # <- here
    train(model, 50)
    planted.now()
    torch.manual_seed(0)
    head = torch.nn.Linear(16, 4)
    torch.manual_seed(dist.get_rank())
    model.module.head = head
    if "again" in sys.argv:
        model = DistributedDataParallel(model.module)
    train(model, 100)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
