"""The model of a class, called by the first rank."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet18


class Trainer:
    def __init__(self) -> None:
        self.model = DDP(resnet18())

    def evaluate(self, loader):
        return [self.model(batch) for batch in loader]

    def train(self, loader) -> None:
        if dist.get_rank() == 0:
            self.evaluate(loader)  # hit: wrapped-under-rank
