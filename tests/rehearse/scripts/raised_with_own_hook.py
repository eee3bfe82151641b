"""The script has an excepthook of its own, which must still be called, and rank 1 fails."""

import sys

import planted
import torch
import torch.distributed as dist


def log(kind: type, error: BaseException, trace: object) -> None:
    print(f"own hook: {kind.__name__}: {error}", file=sys.stderr, flush=True)


sys.excepthook = log
dist.init_process_group("gloo")
for step in range(100):
    loss = torch.ones(1) * step
    if dist.get_rank() == 1 and step == 4:
        planted.now()
        raise FloatingPointError("the loss is not finite")  # <- here
    dist.all_reduce(loss)
dist.destroy_process_group()
