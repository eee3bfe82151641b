"""The loss is summed over the ranks before anybody decides."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler


def main(net, train_set, val_set, run, patience) -> None:
    model = DDP(net)
    sampler, val_sampler = DistributedSampler(train_set), DistributedSampler(val_set)
    best, counter = float("inf"), 0
    for epoch in range(100):
        sampler.set_epoch(epoch)
        loss = torch.tensor(run(model, val_sampler))
        dist.all_reduce(loss)
        counter = 0 if loss < best else counter + 1
        best = min(best, loss)
        if counter >= patience:
            break
