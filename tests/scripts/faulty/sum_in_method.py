"""A method that sums over all ranks, called by the first."""

import torch.distributed as dist


class Meter:
    def synchronize(self) -> None:
        dist.all_reduce(self.total)


def report(meter: Meter) -> None:
    if dist.get_rank() == 0:
        meter.synchronize()  # hit: collective-under-rank
