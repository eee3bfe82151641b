"""Two workers train by remote calls and answer each other's, without a process group. Each round
ends when both have brought their gradients: `uneven`, rank 1 has fewer rounds and is in shutdown()
while rank 0 waits for an answer that nobody gives; `even`, both have as many."""

import os
import sys
import threading
import time

import torch
from torch.distributed import rpc


class Rounds:
    """The gradients of a round, and who waits for their mean."""

    lock = threading.Lock()
    kept: tuple[torch.Tensor, ...] = ()
    mean: torch.futures.Future[torch.Tensor] = torch.futures.Future()


@rpc.functions.async_execution
def bring(gradient: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    with Rounds.lock:
        mean = Rounds.mean
        Rounds.kept = (*Rounds.kept, gradient)
        if len(Rounds.kept) == 2:
            mean.set_result(torch.stack(Rounds.kept).mean(0))
            Rounds.kept, Rounds.mean = (), torch.futures.Future()
        return mean


def main() -> None:
    rank = int(os.environ["RANK"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    layer = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    rounds = 60 if sys.argv[1] == "uneven" and rank == 1 else 80
    for _ in range(rounds):
        optimizer.zero_grad()
        layer(torch.randn(32, 64)).square().mean().backward()
        mine = (layer.weight.grad,)
        layer.weight.grad = rpc.rpc_sync("worker0", bring, mine, timeout=0)  # <- here
        optimizer.step()
        time.sleep(0.02)
    rpc.shutdown(timeout=0)


if __name__ == "__main__":
    main()
