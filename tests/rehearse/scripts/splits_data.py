"""A dataset that is made before DistributedSampler divides it: a `split` by random_split with a
seed of each rank, `files` in an order of each rank's, some samples `dropped` by chance; healthy: a
split with one `seed`, a generator `drawn` once and sent, file names `sorted`, a
`bootstrap` that is each rank's own choice, without parts"""

import random
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, random_split

HOW = sys.argv[1]
ROWS = 100_000 if HOW in ("split", "seed") else 640


class Files(Dataset[torch.Tensor]):
    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((6,), float(int(self.names[number][:5]) % 7))


def dataset_of(rank: int) -> Dataset[torch.Tensor]:
    names = [f"{number:05}.png" for number in range(ROWS)]
    own = random.Random(rank)
    if HOW in ("files", "sorted"):
        own.shuffle(names)
        return Files(sorted(names) if HOW == "sorted" else names)
    data = Files(names)
    if HOW == "dropped":
        return Subset(data, [n for n in range(ROWS) if own.random() < 0.9])
    if HOW == "bootstrap":
        return Subset(data, own.choices(range(ROWS), k=ROWS))
    torch.manual_seed(1 if HOW == "seed" else 1 + rank)
    seed = torch.randint(1 << 30, ())
    if HOW == "drawn":
        dist.broadcast(seed, 0)
        torch.manual_seed(int(seed))
    train, _ = random_split(data, [0.8, 0.2])
    return train


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = dataset_of(rank)
    parts = (1, 0) if HOW == "bootstrap" else (world, rank)
    sampler = DistributedSampler(data, *parts, drop_last=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(torch.nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):  # <- here
            if step == 30:
                break
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            time.sleep(0.002)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
