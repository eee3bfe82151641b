"""A device that is worked out somewhere else."""

import torch
import torch.distributed as dist


class Runner:
    def __init__(self, device) -> None:
        self.device = device

    def run(self, model, batch):
        return model.to(self.device)(batch.cuda())


def main(rank: int) -> None:
    dist.init_process_group("nccl")
    Runner(torch.device(rank)).run(torch.nn.Linear(1, 1), torch.rand(1))
