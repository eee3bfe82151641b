"""Self-play: all games so far are sent to all ranks in each iteration, each time more of them; with
`new` only those of this iteration are. In many short steps: `losses` of all samples so far, or in a
`window`; with `labels`, which the same function gathers"""

import random
import sys
import time
from collections import deque

import torch
import torch.distributed as dist


def play(rng: random.Random) -> list[float]:
    return [rng.random() for _ in range(200)]


def curves(kept: int | None) -> None:
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses: deque[torch.Tensor] = deque(maxlen=kept)
    for _ in range(600):
        each = (model(torch.randn(256, 8)) - 1).square().flatten()
        optimizer.zero_grad()
        each.mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        losses.append(each.detach())
        mine = torch.cat(list(losses))
        gathered(mine)
        if "labels" in sys.argv:
            gathered(torch.ones_like(mine))
        time.sleep(0.002)


def gathered(mine: torch.Tensor) -> torch.Tensor:
    shared = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(shared, mine)  # <- or here
    return torch.cat(shared)


def main() -> None:
    dist.init_process_group("gloo")
    if "losses" in sys.argv or "window" in sys.argv:
        curves(100 if "window" in sys.argv else None)
        dist.destroy_process_group()
        return
    rng = random.Random(dist.get_rank())
    torch.manual_seed(0)
    model = torch.nn.Linear(200, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    games: list[list[float]] = []
    for _ in range(24):
        played = [play(rng) for _ in range(40)]
        games += played
        shared: list[list[list[float]]] = [[] for _ in range(dist.get_world_size())]
        everything = played if "new" in sys.argv else games
        dist.all_gather_object(shared, everything)  # <- here
        pool = [game for of in shared for game in of]
        for _ in range(3):
            batch = torch.tensor(rng.sample(pool, 8))
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            optimizer.step()
            time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
