"""400 all-reduces of one number each in every step, where one of 400 numbers would do."""

import torch
import torch.distributed as dist


def step(metrics: list[torch.Tensor]) -> None:
    for metric in metrics:
        dist.all_reduce(metric)  # <- here


def main() -> None:
    dist.init_process_group("gloo")
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        loss = model(torch.randn(4, 16)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step([loss.detach().clone() for _ in range(400)])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
