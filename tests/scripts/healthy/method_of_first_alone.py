"""A method of the first rank that asks nobody, and one that all call."""

import torch.distributed as dist


class Meter:
    def synchronize(self) -> None:
        dist.all_reduce(self.total)

    def show(self) -> None:
        print(self.total)


def report(meter: Meter, other) -> None:
    meter.synchronize()
    if dist.get_rank() == 0:
        meter.show()


def halves(meter: Meter) -> None:
    if dist.get_rank() != 0:
        meter.synchronize()
    print("downloaded")
    if dist.get_rank() == 0:
        meter.synchronize()
