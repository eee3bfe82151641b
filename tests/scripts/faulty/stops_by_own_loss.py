"""Each rank stops when the loss on its own share of the validation set gets no better."""

from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(net, train_set, val_set, run, validate, patience) -> None:
    model = DDP(net)
    train_sampler = DistributedSampler(train_set)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train_loader = DataLoader(train_set, 8, sampler=train_sampler)
    val_loader = DataLoader(val_set, 8, sampler=val_sampler)
    best, counter = float("inf"), 0
    for epoch in range(100):
        train_sampler.set_epoch(epoch)
        run(model, train_loader)
        loss = validate(model, val_loader)
        if loss < best:
            best, counter = loss, 0
        else:
            counter += 1
            if counter >= patience:
                break  # hit: early-stop-per-rank
