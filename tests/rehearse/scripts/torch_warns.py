"""What torch warns of once: `target`: a loss of [N, 1] and [N]; `contrastive`: features of the
other ranks by a collective without a backward; `shards`: each worker of a loader reads all data.
Otherwise all is done as it should be."""

import sys
from collections.abc import Iterator

import planted
import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BATCHES, BATCH = 32, 8


class Batches(IterableDataset[torch.Tensor]):
    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        whole = worker is None or "shards" in sys.argv
        part = range(BATCHES) if whole else range(worker.id, BATCHES, worker.num_workers)
        return (torch.randn(BATCH, 16) for _ in part)


def gathered(features: torch.Tensor) -> torch.Tensor:
    if "contrastive" not in sys.argv:
        return torch.cat(all_gather(features))
    found = [torch.empty_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(found, features)
    found[dist.get_rank()] = features
    dist.all_reduce(features)
    return torch.cat(found)


def main() -> None:
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    planted.now()
    loader = DataLoader(Batches(), batch_size=None, num_workers=2)
    for epoch in range(2):
        print(epoch, len(loader))  # as a progress bar does
        for rows in loader:  # <- here
            predicted = model(rows)
            target = rows.mean(1) if "target" in sys.argv else rows.mean(1, keepdim=True)
            loss = mse_loss(predicted, target)  # <- or here
            loss = loss + 0.01 * gathered(predicted).var()
            optimizer.zero_grad()
            loss.backward()  # <- or here
            optimizer.step()
    dist.destroy_process_group()


main()
