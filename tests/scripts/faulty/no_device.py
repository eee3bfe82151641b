"""NCCL, and everything on "cuda"."""

import torch
import torch.distributed as dist


def main(model, loader) -> None:
    dist.init_process_group(backend="nccl")  # hit: nccl-on-cpu
    device = torch.device("cuda")
    model = model.to(device)  # hit: set-device-missing
    for batch in loader:
        model(batch.cuda())
