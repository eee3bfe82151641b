"""Batches that are moved: by hand, by DDP, by a collate_fn, by a prefetcher."""

from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def by_hand(net, data, sampler, rank) -> None:
    model = DDP(net.cuda(rank), device_ids=[rank])
    for x, y in DataLoader(data, sampler=sampler):
        x, y = x.cuda(rank, non_blocking=True), y.cuda(rank, non_blocking=True)
        mse_loss(model(x), y).backward()


def in_place(net, data, sampler, rank) -> None:
    model = DDP(net.cuda(rank), device_ids=[rank])
    for x, y in DataLoader(data, sampler=sampler):
        mse_loss(model(x), y.to(rank)).backward()


def by_ddp(net, data, sampler, rank) -> None:
    model = DDP(net.to(rank), device_ids=[rank])
    for batch in DataLoader(data, sampler=sampler):
        model(batch).mean().backward()


def by_collate(net, data, sampler, rank, to_gpu) -> None:
    model = DDP(net.cuda(rank))
    for x, _ in DataLoader(data, sampler=sampler, collate_fn=to_gpu):
        model(x).mean().backward()


def by_prefetcher(net, data, sampler, rank, Prefetcher) -> None:
    model = DDP(net.cuda(rank))
    for x, _ in Prefetcher(DataLoader(data, sampler=sampler)):
        model(x).mean().backward()


def on_cpu(net, data, sampler) -> None:
    model = DDP(net)
    for x, y in DataLoader(data, sampler=sampler):
        mse_loss(model(x), y).backward()
