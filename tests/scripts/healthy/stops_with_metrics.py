"""A metric that gathers by itself."""

from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler
from torchmetrics import MeanMetric


def main(net, train_set, val_set, run) -> None:
    model = DDP(net)
    sampler, val_sampler = DistributedSampler(train_set), DistributedSampler(val_set)
    metric = MeanMetric(dist_sync_on_step=True)
    wait = 0
    for epoch in range(100):
        sampler.set_epoch(epoch)
        run(model, val_sampler, metric)
        wait = wait + 1 if metric.compute() > 0.5 else 0
        if wait > 3:
            break
