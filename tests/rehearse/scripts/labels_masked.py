"""Labels of which all but those of the answer are -100, and a mean over the others on each rank:
rank 0 has `split` off the long answers, rank 1 the short ones. Healthy: `shuffled` answers, of
lengths that vary by ten; the number of all ranks' labels `counted` in each step"""

import random
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

HOW = sys.argv[1]
SAMPLES, LENGTH, WORDS = 320, 40, 50
IGNORED = -100


class Chats(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = torch.Generator().manual_seed(number)
        words = torch.randint(0, WORDS, (LENGTH,), generator=drawn)
        answer = 24 + number % 12 if number < SAMPLES // 2 else 1 + number % 4
        labels = words.clone()
        labels[:-answer] = IGNORED
        return words, labels


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(WORDS, 16), nn.Linear(16, WORDS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    order = list(range(SAMPLES))
    if HOW == "shuffled":
        random.Random(3).shuffle(order)
    share = SAMPLES // world
    mine = Subset(Chats(), order[rank * share : (rank + 1) * share])
    loader = DataLoader(mine, batch_size=4, shuffle=True)
    for _ in range(2):
        for words, labels in loader:
            guessed = model(words)
            loss = cross_entropy(
                guessed.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
            )
            count = (labels != IGNORED).sum()
            if HOW == "counted":
                dist.all_reduce(count)
                loss = loss * world
            optimizer.zero_grad()
            (loss / count).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
