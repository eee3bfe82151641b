"""A forward of FSDP collects parameters from all ranks."""

import os

from torch.distributed.fsdp import FullyShardedDataParallel

LOCAL_RANK = int(os.environ["LOCAL_RANK"])


def generate(net, prompt, log) -> None:
    model = FullyShardedDataParallel(net)
    if LOCAL_RANK == 0:
        log(model(prompt))  # hit: wrapped-under-rank
