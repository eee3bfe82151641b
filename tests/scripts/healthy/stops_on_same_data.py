"""All ranks validate on all of the data: the same loss, the same decision."""

from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def main(net, train_set, val_set, run, early_stopping) -> None:
    model = DDP(net)
    sampler = DistributedSampler(train_set)
    val_loader = DataLoader(val_set, 8)
    for epoch in range(100):
        sampler.set_epoch(epoch)
        early_stopping(run(model.module, val_loader))
        if early_stopping.early_stop:
            break
