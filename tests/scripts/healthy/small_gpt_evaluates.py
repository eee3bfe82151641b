"""A GPT has no buffers: rank 0 alone may evaluate it under no_grad."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def estimate_loss(model, batches) -> float:
    return sum(model(b).item() for b in batches)


def main(gpt, batches, master_process, steps, local_rank) -> None:
    model = DDP(gpt, device_ids=[local_rank])
    for step in range(steps):
        if step % 100 == 0 and master_process:
            print(estimate_loss(model, batches))
