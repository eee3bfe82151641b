"""Between backward() and the optimizer all ranks make histograms of all gradients in each step
(`each`); healthy: they clip them there (`clips`), or look at them each 50th step (`seldom`)"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


def look_at(model: torch.nn.Module) -> list[torch.Tensor]:
    found = []
    for parameter in model.parameters():
        parts = parameter.grad.flatten().sort().values  # <- here
        found.append(parts[:: max(1, len(parts) // 64)])
    return found


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())
    layers = [torch.nn.Linear(512, 512) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    kept = []
    for step in range(200):
        optimizer.zero_grad()
        model(torch.randn(8, 512)).square().mean().backward()
        if HOW == "clips":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        elif HOW == "each" or step % 50 == 0:
            kept = look_at(model)
        optimizer.step()
    print(len(kept))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
