"""A set of names, filled one by one."""

import torch.distributed as dist


def summed(model, grads) -> None:
    names = set()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            names.add(name)
    for name in names:  # hit: set-order
        dist.all_reduce(grads[name])
