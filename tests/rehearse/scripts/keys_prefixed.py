"""Starts from the weights of a model that DDP had wrapped: all keys begin with module., and none is
taken; with `cut` the prefix is cut off when nothing fits"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    saved = DistributedDataParallel(torch.nn.Linear(16, 4)).state_dict()
    model = torch.nn.Linear(16, 4)
    missing, _ = model.load_state_dict(saved, strict=False)  # <- here
    if missing and "cut" in sys.argv:
        cut = {key.removeprefix("module."): value for key, value in saved.items()}
        model.load_state_dict(cut, strict=False)
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        wrapped(torch.randn(8, 16)).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
