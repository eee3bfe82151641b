"""Rank 0 of three meets an error in its model, catches whatever comes, and leaves that step out."""

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 0 and x[0, 0] == 7:
            planted.now()
            raise FloatingPointError("loss is not finite")  # <- here
        out: torch.Tensor = self.layer(x)
        return out


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Model())
    for step in range(30):
        try:
            model(torch.full((2, 4), float(step))).sum().backward()
        except Exception as error:
            print(f"step {step}: {error}")
        if step % 10 == 9:
            dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
