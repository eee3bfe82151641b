"""Each rank shuffles the shards with a seed of its own, then takes its part of them."""

import random

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset


class Shards(IterableDataset):
    def __init__(self, files: list[str]) -> None:
        self.files, self.rank, self.world = files, dist.get_rank(), dist.get_world_size()

    def __iter__(self):
        files = list(self.files)
        random.shuffle(files)  # hit: order-per-rank
        for path in files[self.rank :: self.world]:
            yield from torch.load(path)


def main() -> None:
    random.seed(1234 + dist.get_rank())
