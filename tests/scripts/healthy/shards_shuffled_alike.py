"""All ranks shuffle the shards in one order of the epoch, then each takes its part of them."""

import random

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset


class Shards(IterableDataset):
    def __init__(self, files: list[str]) -> None:
        self.files, self.epoch = files, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def __iter__(self):
        files = list(self.files)
        random.Random(self.epoch).shuffle(files)
        mine = files[self.rank :: self.world]
        random.shuffle(mine)
        for path in mine:
            yield from torch.load(path)
