"""Each rank leaves out a layer of its own choice, as with LayerDrop or stochastic depth; with
`healthy` DDP looks for unused parameters, and the loss runs off to infinity."""

import sys

import planted
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        dropped = dist.get_rank() + 1
        for number, layer in enumerate(self.layers):
            if number != dropped:
                batch = batch + layer(batch)
        return batch


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    healthy = "healthy" in sys.argv
    model = DDP(Net(), find_unused_parameters=healthy)  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0 if healthy else 0.01)
    for step in range(60 if healthy else 5):
        if step == 1:
            planted.now()
        optimizer.zero_grad()
        model(torch.randn(2, 8)).pow(2).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
