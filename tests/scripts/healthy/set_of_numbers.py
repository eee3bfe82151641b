"""Numbers are in one order in every process."""

import torch.distributed as dist


def summed(groups, wanted) -> None:
    chosen = set()
    for number in range(wanted):
        chosen.add(number)
    for number in chosen:
        dist.all_reduce(groups[number])
    for number in set(wanted):
        dist.all_reduce(groups[number])
