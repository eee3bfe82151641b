"""Sets that are sorted, sets of numbers, sets that no collective hangs on, dicts."""

import torch.distributed as dist


def main(values, model) -> None:
    for name in sorted({"loss", "accuracy"}):
        dist.all_reduce(values[name])
    for number in {1, 2, 3}:
        dist.broadcast(values[number], 0)
    for number in set(range(8)):
        dist.broadcast(values[number], 0)
    for name in {"a", "b"}:
        print(name)
    for name in values:
        dist.all_reduce(values[name])
    for name in dict.fromkeys(model.state_dict()):
        dist.barrier()
        print(name)
    groups = {dist.new_group([0]), dist.new_group([1])}
    print(len(groups))
