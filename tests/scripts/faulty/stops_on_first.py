"""Rank 0 alone validates, and alone leaves the loop."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(net, loader, sampler, run, stopper) -> None:
    model = DDP(net)
    for epoch in range(100):
        sampler.set_epoch(epoch)
        run(model, loader)
        if dist.get_rank() == 0:
            stopper(run(model.module, loader))
            if stopper.early_stop:
                print("Early stopping")
                break  # hit: early-stop-per-rank
